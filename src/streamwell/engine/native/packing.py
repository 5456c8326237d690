"""Turns a model's weights into what the helper's structures point to, and keeps that."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, TypeVar

import torch

from streamwell.engine.native.linear import PackedLinear, interleave, storage_kind
from streamwell.engine.native.structures import NormStruct
from streamwell.engine.native.weight_memory import WeightMemory

_Array = TypeVar("_Array", bound=ctypes.Array[Any])


class Packer:
    """Packs weights by their names; what it made lives as long as it does.

    Shapes are trusted: check them before. `forget_weights` when all are packed.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        weights: Mapping[str, torch.Tensor],
        dtype: torch.dtype,
        quantization: str,
        factor: float = 1.0,
    ) -> None:
        """`dtype` is what layers multiply in, `factor` that of what they accumulate."""
        self.library, self.dtype = library, dtype
        self._weights = weights
        self._quantization, self._factor = quantization, factor
        self._memory = WeightMemory()
        self._kept: list[torch.Tensor | PackedLinear | ctypes.Array[Any]] = []

    def linear(self, *names: str, quantization: str | None = None) -> PackedLinear:
        """One layer for several that read the same input; some may have no bias."""
        parts = [self._weights[f"{name}.weight"] for name in names]
        weight = parts[0] if len(parts) == 1 else torch.cat(parts)
        return self.pack(weight, self._bias(names, parts), quantization)

    def gated(self, gate: str, up: str) -> PackedLinear:
        """A gate and what it multiplies."""
        parts = [self._weights[f"{name}.weight"] for name in (gate, up)]
        bias = self._bias((gate, up), parts)
        if bias is not None:
            bias = interleave(*bias[:, None].chunk(2))[:, 0]
        return self.pack(interleave(*parts), bias)

    def pack(
        self, weight: torch.Tensor, bias: torch.Tensor | None, quantization: str | None = None
    ) -> PackedLinear:
        """A layer of `[n, k]` weights and `[n]` biases."""
        kind = storage_kind(
            weight,
            quantization or self._quantization,
            self.dtype,
            fast_pairs=bool(self.library.sw_has_fast_pairs()),
        )
        linear = PackedLinear(self.library, weight, bias, kind, self._factor, self._memory)
        self._kept.append(linear)
        return linear

    def norm(
        self, name: str, *, has_bias: bool = False, plus: float = 0.0, factor: float = 1.0
    ) -> NormStruct:
        """A norm; its weights are `plus` more than is saved, its results `factor` times that."""
        weight = self.keep((self._weights[f"{name}.weight"].float() + plus) * factor)
        if not has_bias:
            return NormStruct(weight, None)
        return NormStruct(weight, self.keep(self._weights[f"{name}.bias"].float() * factor))

    def keep(self, tensor: torch.Tensor) -> int:
        """Where the tensor's numbers are, for good."""
        tensor = tensor.contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr()

    def keep_array(self, structs: _Array) -> _Array:
        """An array of structures, for good."""
        self._kept.append(structs)
        return structs

    def forget_weights(self) -> None:
        """Let go of what the weights were before."""
        self._weights = {}

    def _bias(self, names: tuple[str, ...], parts: list[torch.Tensor]) -> torch.Tensor | None:
        if all(f"{name}.bias" not in self._weights for name in names):
            return None
        biases = [
            self._weights.get(f"{name}.bias", part.new_zeros(part.shape[0]))
            for name, part in zip(names, parts, strict=True)
        ]
        return torch.cat(biases).float()
