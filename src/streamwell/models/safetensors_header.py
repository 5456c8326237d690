"""Reads what a safetensors file says of its tensors, and checks it against the file.

The format (https://github.com/huggingface/safetensors, "Format"): eight bytes with the length of
the header, little endian; the header, a JSON object from names to type, shape and place; the
tensors, which fill the rest without gaps. No tensor is read here.
"""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamwell.core.errors import LoadError

#: Bits of an element.
_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F8_E4M3": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E8M0": 8,
    "I8": 8,
    "U8": 8,
    "BF16": 16,
    "F16": 16,
    "I16": 16,
    "U16": 16,
    "F32": 32,
    "I32": 32,
    "U32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
#: Large enough for 300,000 tensors; the format allows three times as much.
_MAX_HEADER_BYTES = 32 << 20
#: No tensor has more elements along one dimension, empty ones included, nor more dimensions.
_MAX_SIZE, _MAX_DIMENSIONS = 1 << 40, 8


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What a header says of one tensor."""

    dtype: str
    shape: tuple[int, ...]
    #: Bytes behind the header, from and to.
    begin: int
    end: int

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)


def read_header(file: Path) -> dict[str, TensorInfo]:
    """The tensors of a file by name.

    Raises:
        LoadError: the header does not fit the file, or itself.
    """
    header, data_bytes = _read(file)
    try:
        tensors = _tensors(header)
        _check_places(tensors, data_bytes)
    except _HeaderError as error:
        raise LoadError(f"{file} {error}") from error
    return tensors


class _HeaderError(Exception):
    """What is wrong, as the rest of a sentence that begins with the file."""


def _read(file: Path) -> tuple[bytes, int]:
    """The header, and the bytes behind it."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise LoadError(f"{file} is not a regular file")
        with file.open("rb") as stream:
            start = stream.read(8)
            length = int.from_bytes(start, "little")
            rest = status.st_size - len(start)
            if len(start) < 8 or length > rest:
                raise LoadError(f"{file} is truncated: its header goes beyond its end")
            if length > _MAX_HEADER_BYTES:
                raise LoadError(f"{file} has a header of {length} bytes, which is too large")
            return stream.read(length), rest - length
    except OSError as error:
        raise LoadError(f"{file} cannot be read: {error.strerror}") from error


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as it stands: a name may come twice."""


def _parse(header: bytes) -> _Pairs:
    try:
        content = json.loads(header.decode("utf-8"), object_pairs_hook=_Pairs)
    except RecursionError as error:
        raise _HeaderError("has a header that is nested too deeply") from error
    except ValueError as error:
        raise _HeaderError(f"has a header that is no JSON: {error}") from error
    if not isinstance(content, _Pairs):
        raise _HeaderError("has a header that is no JSON object")
    return content


def _tensors(header: bytes) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for name, entry in _parse(header):
        if name in tensors:
            raise _HeaderError(f"has the tensor {name!r} twice")
        if name != "__metadata__":
            tensors[name] = _tensor(name, entry)
    return tensors


def _tensor(name: str, entry: object) -> TensorInfo:
    match dict(entry) if isinstance(entry, _Pairs) else entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)]}:
            pass
        case _:
            raise _HeaderError(f"says of {name!r} what is no type, shape and place")
    if dtype not in _BITS:
        raise _HeaderError(f"has {name!r} in the unknown type {dtype!r:.40}")
    sizes_are_sound = all(type(size) is int and 0 <= size < _MAX_SIZE for size in shape)
    if len(shape) > _MAX_DIMENSIONS or not sizes_are_sound:
        raise _HeaderError(f"has {name!r} in an impossible shape: {shape!s:.80}")
    tensor = TensorInfo(dtype, tuple(shape), begin, end)
    if tensor.num_elements * _BITS[dtype] != 8 * (end - begin):
        raise _HeaderError(f"has {end - begin} bytes for {name!r}, which is {dtype} of {shape}")
    return tensor


def _check_places(tensors: Mapping[str, TensorInfo], data_bytes: int) -> None:
    """Every byte behind the header belongs to one tensor."""
    place = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != place:
            raise _HeaderError(f"has {name!r} overlap another tensor, or leaves a gap before it")
        place = tensor.end
    if place > data_bytes:
        raise _HeaderError(f"is truncated: {place - data_bytes} bytes of its tensors are missing")
    if place < data_bytes:
        raise _HeaderError(f"has {data_bytes - place} bytes that belong to no tensor")
