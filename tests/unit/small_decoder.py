"""A decoder of one layer, anywhere."""

from __future__ import annotations

from typing import Any

import torch

from streamwell.engine.block import LeanDecoder
from streamwell.engine.families import DecoderSpec, Rope

META = torch.device("meta")
HIDDEN, INNER, VOCABULARY, MAX_POSITIONS = 32, 48, 50, 1024

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


def decoder(
    window: int | None, variations: dict[str, Any], device: torch.device = META
) -> LeanDecoder:
    """One layer; on a device with values they are random."""

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device) / shape[-1] ** 0.5

    spec = DecoderSpec(
        num_layers=1,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        norm_eps=1e-6,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        windows=(window,),
        ropes=(Rope(theta=10000.0, dim=8),),
        **variations,
    )
    weights = {
        "model.embed_tokens": tensor(VOCABULARY, HIDDEN),
        "model.embed_positions": tensor(MAX_POSITIONS, HIDDEN),
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
