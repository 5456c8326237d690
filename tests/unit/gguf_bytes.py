"""GGUF files byte by byte, also such as no program would write."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

UINT32, FLOAT32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
F32, F16, Q8_0 = 0, 1, 8

#: How elements of an array are packed, and the number of their type.
_ITEMS = {bool: ("<?", BOOL), int: ("<I", UINT32), str: ("", STRING)}

Value = int | float | str | Sequence[str] | Sequence[bool] | Sequence[int]


def string(text: str | bytes) -> bytes:
    content = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(content)) + content


def value(content: Value) -> bytes:
    """A value behind the number of its type."""
    if isinstance(content, str):
        return struct.pack("<I", STRING) + string(content)
    if isinstance(content, float):
        return struct.pack("<If", FLOAT32, content)
    if isinstance(content, int):
        return struct.pack("<II", UINT32, content)
    form, number = _ITEMS[type(content[0]) if content else str]
    items = (string(x) if isinstance(x, str) else struct.pack(form, x) for x in content)
    return struct.pack("<IIQ", ARRAY, number, len(content)) + b"".join(items)


#: What the smallest of models says of itself.
LLAMA: Mapping[str, Value] = {
    "general.architecture": "llama",
    "llama.context_length": 256,
    "llama.block_count": 1,
    "llama.embedding_length": 8,
    "llama.feed_forward_length": 16,
    "llama.attention.head_count": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.model": "gpt2",
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """An entry of the table of tensors."""

    name: str
    #: The last dimension first.
    sizes: tuple[int, ...]
    kind: int = F32
    offset: int = 0

    def entry(self) -> bytes:
        sizes = struct.pack(f"<I{len(self.sizes)}Q", len(self.sizes), *self.sizes)
        return string(self.name) + sizes + struct.pack("<IQ", self.kind, self.offset)


def gguf(
    metadata: Mapping[str, Value | bytes],
    tensors: Sequence[Tensor] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    num_tensors: int | None = None,
    num_pairs: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A file; values in bytes stand as they are, behind their keys."""
    start = struct.pack(
        "<4sIQQ",
        b"GGUF",
        version,
        len(tensors) if num_tensors is None else num_tensors,
        len(metadata) if num_pairs is None else num_pairs,
    )
    pairs = [
        string(key) + (content if isinstance(content, bytes) else value(content))
        for key, content in metadata.items()
    ]
    header = start + b"".join(pairs) + b"".join(tensor.entry() for tensor in tensors)
    return header + bytes(-len(header) % alignment) + data
