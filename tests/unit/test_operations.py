"""What stands between linear layers, next to Transformers' own."""

from __future__ import annotations

import torch
from transformers import GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts

from streamwell.engine.operations import IN_PYTORCH


def test_the_bounded_gate_is_that_of_gpt_oss() -> None:
    """Also of numbers beyond its bounds; what is none comes out as none."""
    config = GptOssConfig(hidden_size=8, intermediate_size=8, num_local_experts=1)
    experts = GptOssExperts(config)
    gate, up = 8 * torch.randn(2, 50, 64, generator=torch.Generator().manual_seed(0))
    up[0, 0] = gate[0, 1] = torch.nan

    got = IN_PYTORCH.gate("clamped_swiglu")(torch.cat((gate, up), -1))

    expected = experts._apply_gate(torch.stack((gate, up), -1).flatten(-2))
    torch.testing.assert_close(got, expected, equal_nan=True)
    assert 2 == got.isnan().sum()
