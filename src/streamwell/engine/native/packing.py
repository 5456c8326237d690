"""Turns a model's weights into what the helper's structures point to, and keeps that."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

import torch

from streamwell.engine.native.linear import (
    PANEL,
    PackedLinear,
    interleave,
    side_by_side,
    storage_kind,
)
from streamwell.engine.native.memory import WeightMemory
from streamwell.engine.native.structures import NormStruct
from streamwell.engine.quantization import head_quantization
from streamwell.engine.saved_weights import SavedRows, SavedWeights, joined
from streamwell.models.gguf_header import KEPT

#: Bits that are too few for the layer that decides between near tokens.
_COARSE = 4

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
        rounding: SavedWeights | None = None,
    ) -> None:
        """`dtype` is what layers multiply in, `factor` that of what they accumulate.

        In a model that is rounded the few layers that are not are computed in float32. With
        `rounding`, which is these weights, those that are rounded as they are saved stay so.
        """
        self.library, self.dtype = library, dtype
        self._weights, self._rounding = weights, rounding
        self._quantization, self._factor = quantization, factor
        is_rounded = rounding is not None or quantization != "none"
        self._unrounded_dtype = torch.float32 if is_rounded else dtype
        self._memory = WeightMemory()
        self._kept: list[torch.Tensor | PackedLinear | ctypes.Array[Any]] = []

    def linear(self, *names: str, quantization: str | None = None) -> PackedLinear:
        """One layer for several that read the same input; some may have no bias.

        Those that stay as they are saved keep a type each, if panels allow. `quantization` is
        what it is rounded to, whatever the others are.
        """
        if quantization is not None:
            return self._joined(names, self._floats(names), quantization)
        runs = self._runs(names)
        return side_by_side([self._joined(run, self._parts(run), self._form(run)) for run in runs])

    def head(self, name: str) -> PackedLinear:
        """The output layer, which decides between near tokens."""
        if self._rounding is None:
            return self.linear(name, quantization=head_quantization(self._quantization))
        kept = KEPT.get(self._rounding.saved_kind(f"{name}.weight") or "")
        is_coarse = kept is not None and kept.bits == _COARSE
        return self.linear(name, quantization="int8_groups" if is_coarse else None)

    def table(self, name: str) -> torch.Tensor | PackedLinear:
        """Embeddings, whose rows are read one by one; rounded as an output layer is."""
        if self._form((name,)) == "none":
            return self._weights[f"{name}.weight"]
        if self._rounding is None:
            return self.linear(name, quantization=head_quantization(self._quantization))
        return self.linear(name)

    def gated(self, gate: str, up: str) -> PackedLinear:
        """A gate and what it multiplies."""
        parts = self._parts((gate, up))
        bias = self._bias((gate, up), parts)
        if bias is not None:
            bias = interleave(bias[:, None].chunk(2))[:, 0]
        return self.pack(joined(parts, interleave), bias, self._form((gate, up)))

    def pack(
        self,
        weight: torch.Tensor | SavedRows,
        bias: torch.Tensor | None,
        quantization: str | None = None,
    ) -> PackedLinear:
        """A layer of `[n, k]` weights and `[n]` biases."""
        kind = storage_kind(
            weight,
            quantization or self._quantization,
            self._unrounded_dtype,
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

    def vector(self, name: str) -> int:
        """Where the numbers of a tensor are, for good, as floats."""
        return self.keep(self._weights[name].float())

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
        self._weights, self._rounding = {}, None

    def _joined(
        self, names: tuple[str, ...], parts: list[torch.Tensor | SavedRows], quantization: str
    ) -> PackedLinear:
        whole = joined(parts, lambda rows: torch.cat(list(rows)))
        return self.pack(whole, self._bias(names, parts), quantization)

    def _runs(self, names: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Neighbours of one type together, if all that have others after them end with a panel."""
        if self._rounding is None:
            return [names]
        runs = [tuple(run) for _, run in groupby(names, lambda name: self._kinds((name,)))]
        shapes = self._rounding.outline
        heights = [sum(shapes[f"{name}.weight"].shape[0] for name in run) for run in runs]
        return [names] if any(height % PANEL for height in heights[:-1]) else runs

    def _kinds(self, names: tuple[str, ...]) -> set[str | None]:
        """The types that they are rounded to as they are saved, and are to stay in."""
        if self._rounding is None:
            return {None}
        return {self._rounding.saved_kind(f"{name}.weight") for name in names}

    def _form(self, names: tuple[str, ...]) -> str:
        """What a layer is rounded to that is not kept as it is saved."""
        if self._rounding is None:
            return self._quantization
        return "none" if self._kinds(names) == {None} else "int8_groups"

    def _parts(self, names: tuple[str, ...]) -> list[torch.Tensor | SavedRows]:
        """Matrices as they are saved, if they are all alike and stay so; else their floats."""
        kinds = self._kinds(names)
        if self._rounding is None or len(kinds) > 1 or kinds.isdisjoint(KEPT):
            return self._floats(names)
        return [self._rounding.saved_rows(f"{name}.weight") for name in names]

    def _floats(self, names: tuple[str, ...]) -> list[torch.Tensor | SavedRows]:
        return [self._weights[f"{name}.weight"] for name in names]

    def _bias(
        self, names: tuple[str, ...], parts: Sequence[torch.Tensor | SavedRows]
    ) -> torch.Tensor | None:
        if all(f"{name}.bias" not in self._weights for name in names):
            return None
        biases = [
            self._weights.get(f"{name}.bias", torch.zeros(part.shape[0]))
            for name, part in zip(names, parts, strict=True)
        ]
        return torch.cat(biases).float()
