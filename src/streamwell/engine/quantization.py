"""Which weights are rounded, and to what.

`int8` has a scale per output; `int4` has one per 32 inputs of an output, as llama.cpp's Q4_0. The
native helper computes with the small integers themselves; here they are turned back into floats, so
that PyTorch runs the same model at full size. `int8_groups`, as Q8_0, is the helper's alone: for
weights that a GGUF file has rounded in a way that the helper does not keep.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

#: Inputs that share a scale in int4.
GROUP = 32


def head_quantization(quantization: str) -> str:
    """The output layer decides between near tokens: it stays at eight bits at least."""
    return "int8" if quantization == "int4" else quantization


def effective(quantization: str, in_features: int) -> str:
    """What weights of so many inputs are rounded to: groups are to be whole."""
    is_whole = in_features % GROUP == 0
    return quantization if is_whole or quantization not in ("int4", "int8_groups") else "int8"


def in_effect(quantization: str, widths: Iterable[int]) -> str:
    """What a model with layers of so many inputs is rounded to, e.g. `int4+int8`."""
    return "+".join(sorted({effective(quantization, width) for width in widths}))


def rounded(weight: torch.Tensor, quantization: str) -> torch.Tensor:
    """`[n, k]` weights as their rounded values, in their own dtype."""
    kind = effective(quantization, weight.shape[1])
    if kind == "none":
        return weight
    if kind in ("int8", "int8_groups"):
        size = GROUP if kind == "int8_groups" else weight.shape[1]
        parts = weight.float().view(weight.shape[0], -1, size)
        scale = (parts.abs().amax(2, keepdim=True) / 127).clamp_min(1e-30)
        return (torch.round(parts / scale) * scale).view(weight.shape).to(weight.dtype)
    groups = weight.float().view(weight.shape[0], -1, GROUP)
    extreme = groups.gather(2, groups.abs().argmax(2, keepdim=True))
    scale = (extreme / -8).half().float()  # the value of largest magnitude becomes -8
    levels = torch.round(groups / torch.where(scale == 0, 1.0, scale)).clamp(-8, 7)
    return (levels * scale).view(weight.shape).to(weight.dtype)
