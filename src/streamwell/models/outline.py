"""What can be said of a model folder without loading it: its family, its context, its size on disk.

Cheap enough for a list of models: a small file is read, and files are asked for their sizes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamwell.models.gguf_header import KEPT, PLAIN, ROUNDED_ANEW
from streamwell.models.safetensors_header import TensorInfo
from streamwell.models.small_files import check_sizes, read_object
from streamwell.models.weights import MXFP4_BLOCKS, is_gguf, read_headers, weight_files

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
#: Tensors of a GGUF file that become one layer of one type.
_ONE_LAYER = (
    ("ffn_gate", "ffn_up"),
    ("ffn_gate_exps", "ffn_up_exps"),
    ("ffn_gate_shexp", "ffn_up_shexp"),
)
_FUSED = re.compile(rf"\.({'|'.join(name for names in _ONE_LAYER for name in names)})\.weight$")


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


def size_in_memory(path: Path, *, keeps_rounding: bool, is_coded: bool = False) -> int:
    """Bytes of the same once they are loaded, at the least.

    What is rounded in a GGUF file or in MXFP4 is either kept so, at 4.5 to 8.5 bits, or takes two
    bytes a number; what is computed as one layer and is of several types takes 8.5. Matrices in
    bfloat16 take 12 bits a number if they are coded. All else is as large as on disk. To read the
    header of a GGUF file takes up to a second.

    Raises:
        LoadError: there are none.
        OSError: one of the files is missing.
    """
    tensors = read_headers(path)
    if not is_gguf(path):
        size = size_on_disk(path) + (0 if keeps_rounding else _spread_out(tensors))
    elif keeps_rounding:
        size = sum(_kept_bytes(name, tensors) for name in tensors)
    else:
        size = sum(_bytes_of_floats(tensor) for tensor in tensors.values())
    return size - (_saved_by_codes(tensors) if is_coded else 0)


def _spread_out(tensors: Mapping[str, TensorInfo]) -> int:
    """What numbers in MXFP4 take more as floats, of four times as many bytes."""
    blocks = (tensor for name, tensor in tensors.items() if MXFP4_BLOCKS.fullmatch(name))
    return sum(3 * (tensor.end - tensor.begin) for tensor in blocks)


def _saved_by_codes(tensors: Mapping[str, TensorInfo]) -> int:
    """A quarter of the bytes of matrices in bfloat16."""
    matrices = (t for t in tensors.values() if t.dtype == "BF16" and len(t.shape) > 1)
    return sum(tensor.end - tensor.begin for tensor in matrices) // 4


def _bytes_of_floats(tensor: TensorInfo) -> int:
    return max(tensor.end - tensor.begin, 2 * tensor.num_elements)


def _kept_bytes(name: str, tensors: Mapping[str, TensorInfo]) -> int:
    """Of a tensor in a GGUF file that stays rounded, if it is."""
    tensor, match = tensors[name], _FUSED.search(name)
    part = match[1] if match else name
    group = next((group for group in _ONE_LAYER if part in group), (part,))
    names = (name.replace(part, each) for each in group)
    kinds = {tensors[each].dtype for each in names if each in tensors}
    if kinds <= PLAIN:
        return _bytes_of_floats(tensor)
    kept = KEPT.get(tensor.dtype) if len(kinds) == 1 else None
    return int(tensor.num_elements * (kept or ROUNDED_ANEW).all_bits / 8)


def _context(config: Mapping[str, Any]) -> int | None:
    if config.get("model_type") in UNBOUNDED:
        return None
    sizes = (config.get(name) for name in POSITIONS)
    return next((size for size in sizes if type(size) is int and size > 0), None)
