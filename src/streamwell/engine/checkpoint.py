"""The weights of a model folder."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from pathlib import Path

import torch
from safetensors import safe_open

from streamwell.core.errors import LoadError
from streamwell.engine.gguf import GgufWeights
from streamwell.engine.mxfp4 import Mxfp4Weights
from streamwell.engine.saved_weights import SavedRows, SavedWeights
from streamwell.models.gguf_folder import given
from streamwell.models.weights import MXFP4_BLOCKS, is_gguf, weight_files

#: Told what is done, and how far all of it has come, from 0 to 1.
Report = Callable[[str, float], None]
#: Told how much has been read, from 0 to 1.
Progress = Callable[[float], None]


class Checkpoint(SavedWeights):
    """Weights of files, and how many of them have been read."""

    def __init__(self, saved: SavedWeights, progress: Progress) -> None:
        self.outline, self._saved, self._progress = saved.outline, saved, progress
        self._unread = {name: math.prod(tensor.shape) for name, tensor in saved.outline.items()}
        self._total = max(1, sum(self._unread.values()))
        self._done = 0

    def __getitem__(self, name: str) -> torch.Tensor:
        tensor = self._saved[name]
        self._count(name)
        return tensor

    def saved_kind(self, name: str) -> str | None:
        return self._saved.saved_kind(name)

    def saved_rows(self, name: str) -> SavedRows:
        rows = self._saved.saved_rows(name)
        self._count(name)
        return rows

    def _count(self, name: str) -> None:
        """Tell of every hundredth."""
        before = 100 * self._done // self._total
        self._done += self._unread.pop(name, 0)
        if 100 * self._done // self._total > before:
            self._progress(self._done / self._total)


class _Safetensors(SavedWeights):
    """Tensors of several files; pages are read when they are used."""

    def __init__(self, files: list[Path]) -> None:
        self._tensors: dict[str, torch.Tensor] = {}
        for file in files:
            with safe_open(file, framework="pt") as saved:
                names = saved.keys()
                self._tensors |= {name: saved.get_tensor(name) for name in names}
        self.outline = {name: tensor.to("meta") for name, tensor in self._tensors.items()}

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._tensors[name]


def open_checkpoint(path: Path, dtype: torch.dtype, progress: Progress) -> Checkpoint:
    """The weights of a folder as they are saved; what is rounded in them as `dtype`.

    Raises:
        LoadError: a GGUF file or MXFP4 cannot be read, or a bias is missing that other blocks have.
    """
    files = weight_files(path)
    if is_gguf(path):
        saved: SavedWeights = GgufWeights([file.resolve() for file in files], dtype)
    else:
        saved = _Safetensors(files)
        if any(map(MXFP4_BLOCKS.fullmatch, saved.outline)):
            saved = _in_mxfp4(path, saved, dtype)
    if missing := missing_biases(saved.outline):
        raise LoadError(f"{given(path)} has no weights {missing[0]!r}")
    return Checkpoint(saved, progress)


def _in_mxfp4(path: Path, saved: SavedWeights, dtype: torch.dtype) -> SavedWeights:
    try:
        return Mxfp4Weights(saved, dtype)
    except LoadError as error:
        raise LoadError(f"{path}: {error}") from None


def told_unused(names: Collection[str]) -> tuple[str, ...]:
    """What is to be said of weights that nothing reads, if there are any."""
    if not names:
        return ()
    told = f"weights that are not used: {len(names)}, among them {min(names)!r:.80}"
    return (f"{told}; is config.json theirs?",)


def missing_biases(names: Collection[str]) -> list[str]:
    """Those that a layer lacks, though its like in another block has one.

    Layers may be without biases, so nobody else would notice: they would be computed without.
    """
    layers = [name.removesuffix(".weight") for name in names if name.endswith(".weight")]
    have_bias = {_in_any_block(layer) for layer in layers if f"{layer}.bias" in names}
    biases = (f"{layer}.bias" for layer in layers if _in_any_block(layer) in have_bias)
    return [bias for bias in biases if bias not in names]


def _in_any_block(layer: str) -> str:
    return re.sub(r"\.\d+\.", ".", layer)
