"""GGUF files in several parts: `name-00001-of-00003.gguf` and so on.

llama.cpp's gguf-split and its converter write them. Each has a share of the tensors, and says that
it is a part; what model it is only the first says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from streamwell.core.errors import LoadError
from streamwell.models.gguf_header import GgufHeader, Value, read_gguf
from streamwell.models.safetensors_header import TensorInfo

_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
#: The largest models have some tens.
_MAX_PARTS = 1024


@dataclass(frozen=True)
class GgufModel:
    """The headers of all files that a model is in; most have one."""

    #: By their numbers.
    parts: tuple[GgufHeader, ...]

    @property
    def file(self) -> Path:
        """The first."""
        return self.parts[0].file

    @property
    def metadata(self) -> Mapping[str, Value]:
        return self.parts[0].metadata

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """By name; which file they are in, `read` knows."""
        return {name: info for part in self.parts for name, info in part.tensors.items()}

    def read(self, name: str) -> bytes:
        """A tensor as it stands in its file."""
        part = next(part for part in self.parts if name in part.tensors)
        info = part.tensors[name]
        with part.file.open("rb") as stream:
            stream.seek(info.begin)
            return stream.read(info.end - info.begin)


def part_names(name: str) -> list[str]:
    """What all parts are called of which one has this name; of a file in one part it is its own."""
    match = _NAME.fullmatch(name)
    count = int(match[3]) if match else 0
    if not match or not 0 < int(match[2]) <= count <= _MAX_PARTS:
        return [name]
    return [f"{match[1]}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]


def is_first_part(name: str) -> bool:
    """Also of a file in one part."""
    return part_names(name)[0] == name


def read_gguf_parts(file: Path) -> GgufModel:
    """Read the headers of a file and of all others that belong to it; any of them can be given.

    Raises:
        LoadError: one of them is missing, damaged, or no part of the same.
    """
    names = part_names(file.name)
    if len(names) > 1:
        _require(file, len(names))
    given = read_gguf(file)
    count = given.metadata.get("split.count", 1)
    if count in (0, 1):
        return GgufModel((given,))
    files = [file.with_name(name) for name in names]
    if len(files) != count:
        raise LoadError(
            f"{file} is one of {count!r:.20} parts: it must be called so, as in "
            "model-00001-of-00003.gguf"
        )
    parts = tuple(_read_part(part, number, len(files)) for number, part in enumerate(files))
    _check_tensors(parts)
    return GgufModel(parts)


def _read_part(file: Path, number: int, count: int) -> GgufHeader:
    _require(file, count)
    header = read_gguf(file)
    says = (header.metadata.get("split.no"), header.metadata.get("split.count"))
    if says != (number, count):
        raise LoadError(f"{file} does not say of itself that it is part {number + 1} of {count}")
    return header


def _require(file: Path, count: int) -> None:
    if not file.exists():
        raise LoadError(f"{file} is missing: the model is in {count} parts, and this is one")


def _check_tensors(parts: tuple[GgufHeader, ...]) -> None:
    """Each is in one part, and none is missing."""
    first = parts[0]
    seen: set[str] = set()
    for part in parts:
        if twice := sorted(seen & part.tensors.keys()):
            raise LoadError(f"{part.file} has the tensor {twice[0]!r}, which another part has too")
        seen |= part.tensors.keys()
    promised = first.metadata.get("split.tensors.count", len(seen))
    if len(seen) != promised:
        raise LoadError(
            f"{first.file} promises {promised!r:.20} tensors in {len(parts)} parts, which have "
            f"{len(seen)}"
        )
