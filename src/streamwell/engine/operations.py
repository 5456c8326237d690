"""What a block computes between its linear layers, in PyTorch; `fused_kernels` has it for GPUs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional

#: `[num_tokens, in_features] -> [num_tokens, out_features]`.
Activation = Callable[[torch.Tensor], torch.Tensor]

ACTIVATIONS: dict[str, Activation] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": functools.partial(functional.gelu, approximate="tanh"),
}


class Operations(NamedTuple):
    """Two that are several kernels each where nobody puts them together."""

    #: Turns `[num_tokens, heads, head_dim]` by cosines and sines as in `rotary.Turns`.
    rotate: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    #: `[num_tokens, 2 * size] -> [num_tokens, size]`, by the name of the activation: the first
    #: half goes through it and is multiplied with the second.
    gate: Callable[[str], Activation]


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn `[num_tokens, heads, head_dim]` queries or keys."""
    halves_swapped = x.roll(x.shape[-1] // 2, -1)
    return torch.addcmul(x * cos, halves_swapped, sin)


def _gate(activation: str) -> Activation:
    activate = ACTIVATIONS[activation]

    def gated(both: torch.Tensor) -> torch.Tensor:
        gate, up = both.chunk(2, -1)
        return activate(gate) * up

    return gated


IN_PYTORCH = Operations(rotate, _gate)
