"""The PyTorch path on another device: a step mixes none, and never waits for what it computes.

The device is PyTorch's `meta`: tensors without values, which refuse to be read, and to meet others.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from streamwell.core.types import SamplingParams
from streamwell.engine.block import LeanDecoder
from streamwell.engine.families import DecoderSpec, Rope
from streamwell.engine.sequence import Chunk, Sequence
from streamwell.engine.torch_model import TorchModel

META = torch.device("meta")
HIDDEN, INNER, VOCABULARY, BLOCK_SIZE = 32, 48, 50, 4


def tensor(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device=META)


#: What adds steps of its own, or tensors that are made on the way.
VARIED = {
    "norm": "rms_plus_one",
    "norm_placement": "around",
    "qk_norm": "head",
    "embedding_multiplier": 3.0,
    "attention_softcap": 2.0,
    "logits_softcap": 3.0,
    "has_position_embeddings": True,
}


def decoder(window: int | None, variations: dict[str, Any]) -> LeanDecoder:
    spec = DecoderSpec(
        num_layers=1,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        norm_eps=1e-6,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        windows=(window,),
        ropes=(Rope(theta=10000.0, dim=8),),
        **variations,
    )
    weights = {
        "model.embed_tokens": tensor(VOCABULARY, HIDDEN),
        "model.embed_positions": tensor(64, HIDDEN),
        "model.norm": tensor(HIDDEN),
    }
    weights |= {
        f"model.layers.0.{name}": tensor(*shape)
        for name, shape in {
            "self_attn.q_proj": (32, HIDDEN),
            "self_attn.k_proj": (16, HIDDEN),
            "self_attn.v_proj": (16, HIDDEN),
            "self_attn.o_proj": (HIDDEN, 32),
            "mlp.gate_proj": (INNER, HIDDEN),
            "mlp.up_proj": (INNER, HIDDEN),
            "mlp.down_proj": (HIDDEN, INNER),
            "input_layernorm": (HIDDEN,),
            "post_attention_layernorm": (HIDDEN,),
            "post_self_attn_layernorm": (HIDDEN,),
            "post_mlp_layernorm": (HIDDEN,),
            "self_attn.q_norm": (8,),
            "self_attn.k_norm": (8,),
        }.items()
    }
    return LeanDecoder(spec, {f"{name}.weight": weight for name, weight in weights.items()})


def chunk(start: int, num_tokens: int) -> Chunk:
    sequence = Sequence("", [1] * (start + num_tokens), SamplingParams(max_tokens=1))
    sequence.block_ids = [1, 2, 3, 4]
    return Chunk(sequence, start, num_tokens)


@pytest.mark.parametrize("variations", [{}, VARIED], ids=["plain", "varied"])
@pytest.mark.parametrize("window", [None, 3])
def test_a_step_stays_on_its_device(window: int | None, variations: dict[str, Any]) -> None:
    """Decodes of even and uneven lengths, a new prompt and the rest of one."""
    model = TorchModel(decoder(window, variations), BLOCK_SIZE)
    model.allocate(8)
    for decodes in ([chunk(5, 1), chunk(5, 1)], [chunk(5, 1), chunk(9, 1)]):
        logits = model.forward([*decodes, chunk(0, 6), chunk(4, 5)], [0, 1, 7, 12])

        assert META == logits.device
        assert (4, VOCABULARY) == logits.shape
