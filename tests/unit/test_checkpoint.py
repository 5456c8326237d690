"""Weights are read when they are asked for, and what they are like is known before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from streamwell.engine.checkpoint import open_checkpoint
from streamwell.engine.families import canonical_weights, describe
from streamwell.engine.saved_weights import SavedWeights

#: Queries, keys and values are saved in one, gate and up projection too.
CONFIG = {
    "model_type": "phi3",
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    "original_max_position_embeddings": 128,
    "rope_theta": 10000.0,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
_QKV = "model.layers.0.self_attn.qkv_proj.weight"
_GATE_UP = "model.layers.0.mlp.gate_up_proj.weight"


class CountingWeights(SavedWeights):
    """Weights that remember what was read."""

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        self._weights = weights
        self.outline = {name: weight.to("meta") for name, weight in weights.items()}
        self.read: list[str] = []

    def __getitem__(self, name: str) -> torch.Tensor:
        self.read.append(name)
        return self._weights[name]


def test_progress_is_told_as_tensors_are_read(tmp_path: Path) -> None:
    """Nothing at first, then up to the whole; what is read again does not count again."""
    save_file({"a": torch.ones(30), "b": torch.ones(70)}, tmp_path / "model.safetensors")
    told: list[float] = []
    checkpoint = open_checkpoint(tmp_path, torch.float32, told.append)

    assert {"a": (30,), "b": (70,)} == {n: tuple(t.shape) for n, t in checkpoint.outline.items()}
    assert "a" in checkpoint
    assert [] == told
    assert 100 == sum(checkpoint[name].sum() for name in checkpoint)
    assert [0.3, 1.0] == told
    assert 30 == checkpoint["a"].sum()
    assert [0.3, 1.0] == told


def test_what_is_saved_in_one_is_read_once_for_all_of_its_parts() -> None:
    """Shapes are known before anything is read, and parts are those of the tensor."""
    weights = CountingWeights({_QKV: torch.randn(32, 16), _GATE_UP: torch.randn(64, 16)})
    spec = describe(CONFIG)
    assert spec is not None
    canonical = canonical_weights(CONFIG, spec, weights)
    names = [f"model.layers.0.self_attn.{kind}_proj.weight" for kind in "qkv"]

    assert [(16, 16), (8, 16), (8, 16)] == [tuple(canonical.outline[n].shape) for n in names]
    assert names[0] in canonical
    assert [] == weights.read
    assert torch.equal(torch.cat([canonical[name] for name in names]), weights[_QKV])
    assert [_QKV, _QKV] == weights.read  # the second time by this test


def test_a_weight_that_is_there_twice_is_refused() -> None:
    """Fused with others and by itself: nobody can tell which of them is meant."""
    weights = CountingWeights(
        {_QKV: torch.randn(32, 16), "model.layers.0.self_attn.q_proj.weight": torch.randn(16, 16)}
    )
    spec = describe(CONFIG)
    assert spec is not None

    with pytest.raises(RuntimeError, match=r"another tensor are both .*q_proj\.weight"):
        canonical_weights(CONFIG, spec, weights)
