"""Linear layers, laid out for the device that runs them.

On a CPU the weights are reordered once into oneDNN's blocked layout, which saves doing so in every
call. The operators for it are PyTorch's own but private, so they are tried out first and left alone
where they fail.

What adapters add to a layer is added to its output, for their own rows only; the layer stays as it
is, so sequences with and without adapters are computed together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from streamwell.engine.quantization import rounded

#: `[num_tokens, in_features] -> [num_tokens, out_features]`.
Linear = Callable[[torch.Tensor], torch.Tensor]

#: The number of rows that the layout is chosen for; other numbers work too.
_ROWS_HINT = 32


@dataclass(frozen=True, slots=True)
class Delta:
    """What an adapter adds to a layer's weights: `up @ down`, of low rank (Hu et al. 2021)."""

    #: `[rank, in_features]`.
    down: torch.Tensor
    #: `[out_features, rank]`, times the adapter's scale.
    up: torch.Tensor


#: By the names of layers; the first's, where several are computed as one.
Deltas = Mapping[str, Delta]


class Adapted:
    """Which rows of a step are computed with which adapter."""

    def __init__(self, groups: Sequence[tuple[torch.Tensor | None, Deltas]]) -> None:
        """Each group is `[count]` int64 rows and what is added to them; `None` is all rows."""
        self._groups = groups

    def add_to(self, out: torch.Tensor, x: torch.Tensor, name: str) -> None:
        """Add to a layer's output what the adapters make of its input `x`."""
        for rows, deltas in self._groups:
            delta = deltas.get(name)
            if delta is None:
                continue
            inner = functional.linear(x if rows is None else x[rows], delta.down)
            added = functional.linear(inner, delta.up)
            if rows is None:
                out += added
            else:
                out.index_add_(0, rows, added)


class AdaptableLinear:
    """A linear layer of a model, and the name under which adapters add to it."""

    def __init__(self, linear: Linear, name: str) -> None:
        self._linear, self._name = linear, name

    def __call__(self, x: torch.Tensor, adapted: Adapted | None = None) -> torch.Tensor:
        """`[num_tokens, in_features] -> [num_tokens, out_features]`."""
        out = self._linear(x)
        if adapted is not None:
            adapted.add_to(out, x, self._name)
        return out


class LinearMaker:
    """Makes linear layers of a model's weights by their names."""

    def __init__(
        self, weights: Mapping[str, torch.Tensor], quantization: str, *, may_pack: bool = True
    ) -> None:
        self._weights = weights
        self._quantization = quantization
        self._may_pack = may_pack

    def __call__(self, *names: str, may_round: bool = True) -> AdaptableLinear:
        """One layer for several that read the same input, with biases if they have some."""
        quantization = self._quantization if may_round else "none"
        parts = [rounded(self._weights[f"{name}.weight"], quantization) for name in names]
        weight = parts[0] if len(parts) == 1 else torch.cat(parts)
        found = (self._weights.get(f"{name}.bias") for name in names)
        biases = [bias for bias in found if bias is not None]
        bias = torch.cat(biases) if biases else None
        return AdaptableLinear(make_linear(weight, bias, may_pack=self._may_pack), names[0])


def make_linear(
    weight: torch.Tensor, bias: torch.Tensor | None, *, may_pack: bool = True
) -> Linear:
    """A linear layer over `[out_features, in_features]` weights.

    The weights may be copied into another layout; the caller should let go of them.
    """
    if may_pack and weight.device.type == "cpu" and _packing_works(weight.dtype):
        return _packed(weight, bias)
    return functools.partial(functional.linear, weight=weight, bias=bias)


def _packed(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS_HINT)
    linear_pointwise = torch.ops.mkldnn._linear_pointwise

    def linear(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = linear_pointwise(x, packed, bias, "none", [], "")
        return out

    return linear


@functools.cache
def _packing_works(dtype: torch.dtype) -> bool:
    """Compare a packed layer with a plain one."""
    with torch.inference_mode():
        generator = torch.Generator().manual_seed(0)
        weight = torch.randn(48, 32, generator=generator).to(dtype)
        bias = torch.randn(48, generator=generator).to(dtype)
        x = torch.randn(3, 32, generator=generator).to(dtype)
        try:
            out = _packed(weight, bias)(x)
        except (RuntimeError, AttributeError):
            return False
        expected = functional.linear(x, weight, bias)
        return torch.allclose(out, expected, rtol=1e-2, atol=1e-2)
