"""Memory for packed weights and caches, in pages of 2 MiB where the system gives those to who asks.

A step reads all weights. In pages of 4 KiB it would have to look up where the next one lies some
eight times in a microsecond, and processors do not fetch ahead beyond the end of a page.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

#: Layers share mappings, so that small ones have large pages, too, and that what was only needed to
#: pack them leaves no holes between them.
_MAPPING_BYTES = 64 << 20
_ALIGNMENT = 64
_STRETCH_BYTES = 2 << 20


class WeightMemory:
    """Hands out stretches of memory one after the other; each lives as long as it is used."""

    def __init__(self) -> None:
        self._left = torch.empty(0, dtype=torch.uint8)

    def take(self, num_bytes: int) -> torch.Tensor:
        """`[num_bytes]` uint8, zeros, at a multiple of a cache line."""
        room = -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        # beside it, what is left of a shared mapping would often be too little for the next one
        if room > _MAPPING_BYTES // 4:
            return torch.frombuffer(mapped(room), dtype=torch.uint8)[:num_bytes]
        if room > len(self._left):
            self._left = torch.frombuffer(mapped(_MAPPING_BYTES), dtype=torch.uint8)
        taken, self._left = self._left[:num_bytes], self._left[room:]
        return taken

    def floats(self, count: int) -> torch.Tensor:
        """`[count]` float32, zeros."""
        return self.take(4 * count).view(torch.float32)


def mapped(num_bytes: int) -> mmap.mmap:
    """Zeros, from the beginning of a page on, whose pages take memory once they are written to."""
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def prefault(memories: Sequence[np.ndarray[Any, Any]], num_bytes: int) -> Iterator[None]:
    """Have the system give memory before it is written to; contents stay as they are.

    It takes turns with stretches of 2 MiB from the beginnings on, a stretch for each step of the
    iterator, and ends after about `num_bytes`. Nobody else may write meanwhile. A stretch takes a
    third of a millisecond, or 5 to 15 where a virtual machine must be given memory itself.
    """
    flat = [memory.reshape(-1).view(np.uint8) for memory in memories]
    longest = max((len(memory) for memory in flat), default=0)
    for start in range(0, longest, _STRETCH_BYTES):
        for memory in flat:
            if num_bytes <= 0:
                return
            stretch = memory[start : start + _STRETCH_BYTES]
            if len(stretch):
                stretch[:: mmap.PAGESIZE] |= 0
                num_bytes -= len(stretch)
                yield
