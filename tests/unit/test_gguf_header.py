"""GGUF files are believed only as far as they go."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import pytest
from gguf_bytes import ARRAY, F16, Q8_0, STRING, UINT32, Tensor, gguf, string

from streamwell.core.errors import LoadError
from streamwell.models.gguf_header import TYPES, read_gguf
from streamwell.models.safetensors_header import TensorInfo

NAMED = {"general.architecture": "llama"}
HUGE = 1 << 62


def test_what_it_says_is_read(tmp_path: Path) -> None:
    """Values of all kinds; tensors with their last dimension last, at their places in the file."""
    file = tmp_path / "a.gguf"
    metadata = NAMED | {"a": 7, "b": 0.5, "c": ["x", "é"], "general.alignment": 64}
    tensors = [Tensor("t", (4, 2), F16), Tensor("q", (32, 3), Q8_0, offset=64)]
    file.write_bytes(gguf(metadata, tensors, bytes(64 + 102), alignment=64))

    header = read_gguf(file)

    assert {**metadata, "c": ("x", "é")} == dict(header.metadata)
    start = file.stat().st_size - 64 - 102
    assert header.tensors == {
        "t": TensorInfo("F16", (2, 4), start, start + 16),
        "q": TensorInfo("Q8_0", (3, 32), start + 64, start + 64 + 102),
    }


def test_the_types_are_those_of_the_package() -> None:
    """Names, elements and bytes of blocks."""
    constants = pytest.importorskip("gguf.constants")

    for number, (name, *sizes) in TYPES.items():
        kind = constants.GGMLQuantizationType[name]
        assert (number, tuple(sizes)) == (kind.value, constants.GGML_QUANT_SIZES[kind])


def _pair(kind: int, rest: bytes) -> dict[str, bytes]:
    return {"k": struct.pack("<I", kind) + rest}


def _list(kind: int, count: int) -> dict[str, bytes]:
    return _pair(ARRAY, struct.pack("<IQ", kind, count))


def _one(*sizes: int, kind: int = 0, offset: int = 0) -> bytes:
    return gguf(NAMED, [Tensor("t", sizes, kind, offset)], bytes(64))


DAMAGED = {
    "nothing": (b"", "does not begin with these letters"),
    "other letters": (b"GGML" + bytes(60), "does not begin with these letters"),
    "only letters": (b"GGUF", "its header goes beyond its end"),
    "an old version": (gguf({}, version=1), "of version 1"),
    "big-endian": (gguf({}, version=3 << 24), "little-endian"),
    "many tensors": (gguf({}, num_tensors=HUGE), "claims .* tensors, more than"),
    "many values": (gguf({}, num_pairs=HUGE), "claims .* values, more than"),
    "more values than there are": (gguf(NAMED, num_pairs=9), "truncated|'' twice"),
    "a long key": (gguf({"k" * 300: 1}), "claims 300 bytes of a key"),
    "a key that is no text": (
        gguf({}, num_pairs=1)[:24] + string(b"\xff\xfe") + bytes(40),
        "has a key that is no UTF-8",
    ),
    "a string beyond the end": (
        gguf(_pair(STRING, struct.pack("<Q", 1 << 19))),
        "its header goes beyond its end",
    ),
    "a string of exabytes": (gguf(_pair(STRING, struct.pack("<Q", HUGE))), "claims .* bytes"),
    "a list of strings beyond the end": (
        gguf(_list(STRING, 1 << 20)),
        "goes beyond its end|claims",
    ),
    "a list of numbers beyond the end": (gguf(_list(UINT32, 1 << 20)), "goes beyond its end"),
    "a list without end": (gguf(_list(UINT32, HUGE)), "claims .* items of 'k'"),
    "a list of lists": (gguf(_list(ARRAY, 1)), "list of the unknown type 9"),
    "an unknown type of value": (gguf(_pair(77, b"")), "unknown type 77"),
    "an unknown type of tensor": (_one(32, kind=31), "unknown type 31"),
    "a removed type of tensor": (_one(32, kind=4), "unknown type 4"),
    "no dimensions": (_one(), "impossible shape"),
    "nine dimensions": (_one(*[1] * 9), "claims 9 dimensions"),
    "an empty tensor": (_one(0, 4), "impossible shape"),
    "sizes that overflow": (_one(1 << 63, 2), "impossible shape"),
    "terabytes": (_one(1 << 39), "bytes of 't' are missing"),
    "half a block": (_one(48, kind=Q8_0), "impossible shape"),
    "an offset beyond the end": (_one(4, offset=1 << 40), "bytes of 't' are missing"),
    "an offset out of line": (_one(4, offset=4), "out of line"),
    "a truncated tensor": (_one(16)[:-4], "is truncated: 4 bytes of 't' are missing"),
    "overlapping tensors": (
        gguf(NAMED, [Tensor("a", (16,)), Tensor("b", (8,), offset=32)], bytes(64)),
        "overlap",
    ),
    "a tensor twice": (
        gguf(NAMED, [Tensor("a", (8,)), Tensor("a", (8,), offset=32)], bytes(64)),
        "the tensor 'a' twice",
    ),
    "no alignment": (gguf(NAMED | {"general.alignment": 0}), "general.alignment 0"),
    "an odd alignment": (gguf(NAMED | {"general.alignment": 33}), "general.alignment 33"),
    "a huge alignment": (gguf(NAMED | {"general.alignment": 1 << 30}), "general.alignment"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    """In words, and before it could take room."""
    content, says = DAMAGED[name]
    file = tmp_path / "a.gguf"
    file.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(LoadError, match=says):
            read_gguf(file)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_key_may_not_come_twice(tmp_path: Path) -> None:
    """Which of them would count is not to be guessed."""
    pair = string("k") + struct.pack("<II", UINT32, 1)
    file = tmp_path / "a.gguf"
    file.write_bytes(gguf({}, num_pairs=2)[:24] + pair + pair + bytes(8))

    with pytest.raises(LoadError, match="'k' twice"):
        read_gguf(file)


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    """Wherever a file ends too soon, it is refused."""
    metadata = NAMED | {"a": 7, "c": ["x", "y"]}
    content = gguf(metadata, [Tensor("t", (4, 2), F16)], bytes(16))
    file = tmp_path / "a.gguf"
    for end in range(len(content)):
        file.write_bytes(content[:end])
        with pytest.raises(LoadError):
            read_gguf(file)


def test_a_header_without_end_is_not_read_to_it(tmp_path: Path) -> None:
    """A file with gigabytes of holes where a value should end."""
    file = tmp_path / "a.gguf"
    file.write_bytes(gguf({f"k{i}": "" for i in range(4000)}, num_pairs=4096))
    os.truncate(file, 8 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(LoadError, match=r"header|unknown|twice"):
            read_gguf(file)
        assert tracemalloc.get_traced_memory()[1] < 160 << 20
    finally:
        tracemalloc.stop()


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """Devices, pipes and folders."""
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path, tmp_path / "pipe"):
        with pytest.raises(LoadError, match="not a regular file"):
            read_gguf(path)
