"""The weights of a model folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open

from streamwell.engine.gguf import GgufTensors
from streamwell.models.weights import is_gguf, weight_files

#: Told what is done, and how far all of it has come, from 0 to 1.
Report = Callable[[str, float], None]
#: Told how much has been read, from 0 to 1.
Progress = Callable[[float], None]


class Checkpoint(Mapping[str, torch.Tensor]):
    """Tensors by name, each read when it is asked for, and anew when it is asked for again."""

    def __init__(
        self,
        outline: Mapping[str, torch.Tensor],
        read: Callable[[str], torch.Tensor],
        progress: Progress,
    ) -> None:
        self.outline = outline
        self._read, self._progress = read, progress
        self._unread = {name: math.prod(tensor.shape) for name, tensor in outline.items()}
        self._total = max(1, sum(self._unread.values()))
        self._done = 0

    def __getitem__(self, name: str) -> torch.Tensor:
        tensor = self._read(name)
        self._count(self._unread.pop(name, 0))
        return tensor

    def __contains__(self, name: object) -> bool:
        return name in self.outline

    def __iter__(self) -> Iterator[str]:
        return iter(self.outline)

    def __len__(self) -> int:
        return len(self.outline)

    def _count(self, num_elements: int) -> None:
        """Tell of every hundredth."""
        before = 100 * self._done // self._total
        self._done += num_elements
        if 100 * self._done // self._total > before:
            self._progress(self._done / self._total)


def open_checkpoint(path: Path, dtype: torch.dtype, progress: Progress) -> Checkpoint:
    """The tensors of a folder as they are saved; what is rounded in a GGUF file as `dtype`.

    Raises:
        LoadError: a GGUF file cannot be read.
    """
    files = weight_files(path)
    if is_gguf(path):
        gguf = GgufTensors(files[0], dtype)
        return Checkpoint(gguf.outline(), gguf.read, progress)
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        with safe_open(file, framework="pt") as saved:
            # pages are read from the file when they are used
            tensors |= {name: saved.get_tensor(name) for name in saved.keys()}  # noqa: SIM118
    outline = {name: tensor.to("meta") for name, tensor in tensors.items()}
    return Checkpoint(outline, tensors.__getitem__, progress)
