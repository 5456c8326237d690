"""Reads what a GGUF file says of itself and of its tensors, and checks it against the file.

The format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), versions 2 and 3, little
endian: the letters GGUF, the version, two counts; that many pairs of key and value; that many
tensors by name, sizes (the last one first), type and place; the tensors, each at a multiple of the
alignment. No tensor is read here, and nothing is believed that would take room before it is there.
"""

from __future__ import annotations

import hashlib
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from streamwell.core.errors import LoadError
from streamwell.models.safetensors_header import TensorInfo

Value: TypeAlias = int | float | bool | str | tuple[int | float | bool | str, ...]

#: Types of tensors by their numbers: name, elements of a block, bytes of a block.
TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}
#: Types that hold floats as they are.
PLAIN = frozenset({"F32", "F16", "BF16"})


class Kept(NamedTuple):
    """A type that the native helper can keep as it is."""

    number: int
    #: Of a level.
    bits: int
    #: Of a weight in the helper's memory, scales and all.
    all_bits: float


KEPT: Mapping[str, Kept] = {
    "Q4_0": Kept(2, 4, 4.5),
    "Q4_1": Kept(3, 4, 5.0),
    "Q8_0": Kept(8, 8, 8.5),
    "Q4_K": Kept(12, 4, 4.625),
    "Q5_K": Kept(13, 5, 5.625),
    "Q6_K": Kept(14, 6, 6.625),
    "MXFP4": Kept(39, 4, 4.5),
}
#: What every other type is rounded to that is not to become floats.
ROUNDED_ANEW = KEPT["Q8_0"]
#: Types of values by their numbers, as `struct` has them.
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9

#: Four times what the largest vocabularies of real models take.
_MAX_HEADER_BYTES = 64 << 20
_MAX_PAIRS, _MAX_TENSORS, _MAX_ITEMS = 4096, 1 << 16, 1 << 22
_MAX_NAME_BYTES, _MAX_STRING_BYTES = 256, 1 << 20
_MAX_SIZE, _MAX_DIMENSIONS, _MAX_ALIGNMENT = 1 << 40, 4, 1 << 16


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a file says before its tensors begin."""

    file: Path
    metadata: Mapping[str, Value]
    #: By their own names; the places count from the start of the file.
    tensors: Mapping[str, TensorInfo]
    #: SHA-256 of all this as it stands in the file.
    digest: str


def read_gguf(file: Path) -> GgufHeader:
    """Read the header of a file, and hold it against the file's size.

    Raises:
        LoadError: it is no such file, or damaged, or says what cannot be.
    """
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise LoadError(f"{file} is not a regular file")
        with file.open("rb") as stream:
            content = stream.read(min(_MAX_HEADER_BYTES, status.st_size))
    except OSError as error:
        raise LoadError(f"{file} cannot be read: {error.strerror}") from error
    try:
        return _header(file, _Reader(content, status.st_size))
    except _HeaderError as error:
        raise LoadError(f"{file} {error}") from error


class _HeaderError(Exception):
    """What is wrong, as the rest of a sentence that begins with the file."""


class _Reader:
    """Takes one thing after the other from the first bytes of a file."""

    def __init__(self, content: bytes, file_bytes: int) -> None:
        self.content, self.file_bytes, self.at = content, file_bytes, 0
        self.num_items = 0

    def take(self, kinds: str) -> tuple[int | float | bool, ...]:
        """Numbers, by their letters in `struct`."""
        form = struct.Struct(f"<{kinds}")
        self._require(form.size)
        values = form.unpack_from(self.content, self.at)
        self.at += form.size
        return values

    def count(self, kind: str, most: int, what: str) -> int:
        """A number of things; nothing has been reserved for them yet."""
        value = int(self.take(kind)[0])
        if value > most:
            raise _HeaderError(f"claims {value} {what}, more than {most}")
        return value

    def string(self, most: int, what: str) -> str:
        length = self.count("Q", most, f"bytes of {what}")
        self._require(length)
        start, self.at = self.at, self.at + length
        try:
            return self.content[start : self.at].decode()
        except UnicodeDecodeError as error:
            raise _HeaderError(f"has {what} that is no UTF-8") from error

    def value(self, kind: int, key: str) -> Value:
        if kind in _SCALARS:
            return self.take(_SCALARS[kind])[0]
        if kind == _STRING:
            return self.string(_MAX_STRING_BYTES, f"the value of {key!r}")
        if kind != _ARRAY:
            raise _HeaderError(f"has {key!r} in the unknown type {kind}")
        kind = int(self.take("I")[0])
        count = self.count("Q", _MAX_ITEMS - self.num_items, f"items of {key!r}")
        self.num_items += count
        if kind == _STRING:
            what = f"an item of {key!r}"
            return tuple(self.string(_MAX_STRING_BYTES, what) for _ in range(count))
        if kind not in _SCALARS:
            raise _HeaderError(f"has {key!r} as a list of the unknown type {kind}")
        return self.take(f"{count}{_SCALARS[kind]}")

    def _require(self, num_bytes: int) -> None:
        if self.at + num_bytes > len(self.content):
            if len(self.content) < self.file_bytes:
                raise _HeaderError(f"has a header of more than {_MAX_HEADER_BYTES} bytes")
            raise _HeaderError("is truncated: its header goes beyond its end")


def _header(file: Path, reader: _Reader) -> GgufHeader:
    if reader.content[:4] != b"GGUF":
        raise _HeaderError("is no GGUF file: it does not begin with these letters")
    reader.at = 4
    version = int(reader.take("I")[0])
    if version not in (2, 3):
        raise _HeaderError(f"is GGUF of version {version}, not 2 or 3 in little-endian order")
    num_tensors = reader.count("Q", _MAX_TENSORS, "tensors")
    num_pairs = reader.count("Q", _MAX_PAIRS, "values")
    metadata = _metadata(reader, num_pairs)
    tensors = [_tensor(reader) for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= _MAX_ALIGNMENT or alignment % 8:
        raise _HeaderError(f"has general.alignment {alignment!r}")
    digest = hashlib.sha256(reader.content[: reader.at]).hexdigest()
    start = -(-reader.at // alignment) * alignment
    placed = _placed(tensors, start, alignment, reader.file_bytes)
    return GgufHeader(file, metadata, placed, digest)


def _metadata(reader: _Reader, num_pairs: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for _ in range(num_pairs):
        key = reader.string(_MAX_NAME_BYTES, "a key")
        if key in metadata:
            raise _HeaderError(f"has {key!r} twice")
        metadata[key] = reader.value(int(reader.take("I")[0]), key)
    return metadata


def _tensor(reader: _Reader) -> tuple[str, TensorInfo]:
    """Name, type and shape of a tensor, and its place behind the header."""
    name = reader.string(_MAX_NAME_BYTES, "the name of a tensor")
    num_dimensions = reader.count("I", _MAX_DIMENSIONS, f"dimensions of {name!r}")
    shape = tuple(int(size) for size in reversed(reader.take(f"{num_dimensions}Q")))
    number, begin = (int(value) for value in reader.take("IQ"))
    if number not in TYPES:
        raise _HeaderError(f"has {name!r} in the unknown type {number}")
    kind, block_elements, block_bytes = TYPES[number]
    is_sound = bool(shape) and all(0 < size < _MAX_SIZE for size in shape)
    if not is_sound or shape[-1] % block_elements:
        raise _HeaderError(f"has {name!r} in an impossible shape: {kind} of {shape!s:.80}")
    tensor = TensorInfo(kind, shape, begin, begin)
    num_bytes = tensor.num_elements // block_elements * block_bytes
    return name, TensorInfo(kind, shape, begin, begin + num_bytes)


def _placed(
    tensors: list[tuple[str, TensorInfo]], start: int, alignment: int, file_bytes: int
) -> dict[str, TensorInfo]:
    """The tensors at their places in the file, none of which is beyond its end, or another's."""
    placed: dict[str, TensorInfo] = {}
    last = 0
    for name, tensor in sorted(tensors, key=lambda item: item[1].begin):
        if name in placed:
            raise _HeaderError(f"has the tensor {name!r} twice")
        if tensor.begin < last or tensor.begin % alignment:
            raise _HeaderError(f"has {name!r} overlap another tensor, or out of line")
        if start + tensor.end > file_bytes:
            missing = start + tensor.end - file_bytes
            raise _HeaderError(f"is truncated: {missing} bytes of {name!r} are missing")
        last = tensor.end
        placed[name] = TensorInfo(
            tensor.dtype, tensor.shape, start + tensor.begin, start + tensor.end
        )
    return placed
