"""How far each pair of a head turns: as Transformers computes it from the same config."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_models import CONFIGS
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from streamwell.engine.families import describe
from streamwell.engine.rotary import waves

NUM_POSITIONS = 64


def turns_of(config: LlamaConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of the first positions, by Transformers."""
    turning, magnitude = ROPE_INIT_FUNCTIONS["yarn"](config, torch.device("cpu"))
    angles = torch.outer(torch.arange(NUM_POSITIONS).float(), turning)
    return angles.cos() * magnitude, angles.sin() * magnitude


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"original_max_position_embeddings": 4096},
        {"original_max_position_embeddings": 4096, "factor": None},
        {"beta_fast": 8, "beta_slow": 2},
        {"truncate": False},
        {"attention_factor": 0.5},
        {"mscale": 0.7, "mscale_all_dim": 1.1},
        {"mscale": 0.7, "mscale_all_dim": 0},
        {"factor": 0.5},
        {"rope_theta": 1e6, "original_max_position_embeddings": 32768},
        # nothing between fast and slow
        {"beta_fast": 1, "truncate": False},
    ],
    ids=repr,
)
def test_yarn_turns_as_in_transformers(changes: dict[str, Any]) -> None:
    """With each of its settings, those that are left out included, to a few units of float32."""
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0} | changes
    config = CONFIGS["llama"]().to_dict() | {
        "head_dim": 64,
        "max_position_embeddings": 16384,
        "rope_parameters": rope,
    }

    spec = describe(config)

    assert spec is not None
    assert spec.ropes[0] is not None
    ours = waves(spec.ropes[0], spec.head_dim, NUM_POSITIONS)
    theirs = turns_of(LlamaConfig(**config))
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)
