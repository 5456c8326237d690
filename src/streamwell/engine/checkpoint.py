"""Reads the weights of a model folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import safe_open

from streamwell.engine.gguf import read_gguf_weights
from streamwell.models.weights import is_gguf, weight_files

#: Told what is done, and how far all of it has come, from 0 to 1.
Report = Callable[[str, float], None]


def read_weights(
    path: Path, report: Report, dtype: torch.dtype = torch.float32
) -> dict[str, torch.Tensor]:
    """All tensors by name, as they are saved; pages are read from the file when they are used.

    What is rounded in a GGUF file comes as `dtype`, and takes room in memory.
    """
    files = weight_files(path)
    if is_gguf(path):
        return read_gguf_weights(
            files[0], dtype, lambda done: report("loading weights", 0.1 + 0.4 * done)
        )
    weights: dict[str, torch.Tensor] = {}
    for done, file in enumerate(files, start=1):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a mapping
                weights[name] = tensors.get_tensor(name)
        report("loading weights", 0.1 + 0.4 * done / len(files))
    return weights
