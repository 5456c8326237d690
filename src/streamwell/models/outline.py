"""What can be said of a model folder without loading it: its family, its context, its size on disk.

Cheap enough for a list of models: a small file is read, and files are asked for their sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamwell.models.gguf_header import KEPT, PLAIN, ROUNDED_ANEW
from streamwell.models.safetensors_header import TensorInfo
from streamwell.models.small_files import check_sizes, read_object
from streamwell.models.weights import is_gguf, read_headers, weight_files

#: What families call the positions they were trained on.
POSITIONS = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "seq_length",
    "n_ctx",
)
#: Families whose positions are relative: what their configs call positions bounds nothing.
UNBOUNDED = frozenset({"t5", "mt5"})


@dataclass(frozen=True, slots=True)
class Outline:
    """A model that need not be loaded."""

    #: The `model_type` of its config, e.g. `llama`; empty if it has none.
    family: str
    #: Positions in tokens; `None` if the config is silent, or they are relative, as T5's are.
    context: int | None


def describe_folder(path: Path) -> Outline:
    """What the `config.json` of a model folder says, its text model's where it has several.

    Raises:
        LoadError: there is no such file, or it is no config.
    """
    check_sizes(path)
    config = read_object(path / "config.json")
    inner = config.get("text_config")
    family = config.get("model_type")
    return Outline(
        family if isinstance(family, str) else "",
        _context(inner if isinstance(inner, dict) else config),
    )


def size_on_disk(path: Path) -> int:
    """Bytes of the weights that would be loaded from a folder; their types are not looked at.

    Raises:
        LoadError: there are none.
        OSError: one of the files is missing.
    """
    return sum(file.stat().st_size for file in weight_files(path))


def size_in_memory(path: Path, *, keeps_rounding: bool) -> int:
    """Bytes of the same once they are loaded, at the least.

    What is rounded in a GGUF file is either kept so, at 4.5 to 8.5 bits, or takes two bytes a
    number. To read the header of such a file takes up to a second; else it is the size on disk.

    Raises:
        LoadError: there are none.
        OSError: one of the files is missing.
    """
    if not is_gguf(path):
        return size_on_disk(path)
    return sum(
        _bytes_of(tensor, keeps_rounding=keeps_rounding) for tensor in read_headers(path).values()
    )


def _bytes_of(tensor: TensorInfo, *, keeps_rounding: bool) -> int:
    if keeps_rounding and tensor.dtype not in PLAIN:
        return int(tensor.num_elements * KEPT.get(tensor.dtype, ROUNDED_ANEW).all_bits / 8)
    return max(tensor.end - tensor.begin, 2 * tensor.num_elements)


def _context(config: Mapping[str, Any]) -> int | None:
    if config.get("model_type") in UNBOUNDED:
        return None
    sizes = (config.get(name) for name in POSITIONS)
    return next((size for size in sizes if type(size) is int and size > 0), None)
