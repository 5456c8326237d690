"""Linear layers, laid out for the device that runs them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

#: `[..., in_features] -> [..., out_features]`.
Linear = Callable[[torch.Tensor], torch.Tensor]


def make_linear(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """A linear layer over `[out_features, in_features]` weights.

    The weights may be copied into another layout; the caller should let go of them.
    """

    def linear(x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, weight, bias)

    return linear
