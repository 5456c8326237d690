"""A file that lost a bias is told from a model that has none."""

from __future__ import annotations

import pytest

from streamwell.engine.checkpoint import missing_biases


def names(*layers: str) -> list[str]:
    """Three blocks of these, with biases of those that end in `+`."""
    every = [f"h.{block}.{layer}" for block in range(3) for layer in layers]
    weights = [f"{layer.removesuffix('+')}.weight" for layer in every]
    return [*weights, *(f"{layer.removesuffix('+')}.bias" for layer in every if layer[-1] == "+")]


@pytest.mark.parametrize("lost", ["h.1.mlp.up.bias", "h.0.norm.bias", "h.2.mlp.experts.1.up.bias"])
def test_a_bias_is_missing_that_other_blocks_or_experts_have(lost: str) -> None:
    """Of a linear layer, a norm or an expert."""
    every = names("attn.q", "mlp.up+", "norm+", "mlp.experts.0.up+", "mlp.experts.1.up+")

    assert missing_biases(every) == []
    assert missing_biases([name for name in every if name != lost]) == [lost]


def test_an_expert_misses_what_only_the_others_have() -> None:
    """In every block alike."""
    every = names("mlp.experts.0.up+", "mlp.experts.1.up")

    assert missing_biases(every) == [f"h.{block}.mlp.experts.1.up.bias" for block in range(3)]


def test_buffers_called_bias_are_none() -> None:
    """GPT-2's files have a mask by that name, some blocks' only; it belongs to no weight."""
    assert missing_biases([*names("attn.q", "mlp.up"), "h.0.attn.bias"]) == []
