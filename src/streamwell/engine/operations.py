"""What a block computes between its linear layers, in PyTorch; `fused_kernels` has it for GPUs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional

#: `[num_tokens, in_features] -> [num_tokens, out_features]`.
Activation = Callable[[torch.Tensor], torch.Tensor]

#: Of GPT-OSS's gate: how steep its sigmoid is, and between what it is held.
SWIGLU_ALPHA, SWIGLU_LIMIT = 1.702, 7.0

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
    if activation == "clamped_swiglu":
        return _clamped_swiglu
    activate = ACTIVATIONS[activation]

    def gated(both: torch.Tensor) -> torch.Tensor:
        gate, up = both.chunk(2, -1)
        return activate(gate) * up

    return gated


def _clamped_swiglu(both: torch.Tensor) -> torch.Tensor:
    """SwiGLU (Shazeer 2020) as GPT-OSS has it: both halves are bounded, and one is added to one."""
    gate, up = both.chunk(2, -1)
    gate, up = gate.clamp(max=SWIGLU_LIMIT), up.clamp(-SWIGLU_LIMIT, SWIGLU_LIMIT)
    return gate * torch.sigmoid(SWIGLU_ALPHA * gate) * (up + 1)


IN_PYTORCH = Operations(rotate, _gate)
