"""What one step hands to the helper: indices, and memory to compute in."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt
import torch

from streamwell.engine.native.library import BatchStruct, SequencesStruct
from streamwell.engine.native.linear import make_workspace
from streamwell.engine.sequence import Chunk

#: Positions per cache block, as the helper lays them out.
BLOCK_SIZE = 16


class Buffers:
    """Memory that every step uses again; it grows to the largest step ever seen."""

    def __init__(self, library: ctypes.CDLL, widths: dict[str, int], vocab_size: int) -> None:
        """`widths` are the floats per row of each buffer, by its name in the structure."""
        self._library = library
        self._widths = widths
        self._rows = 0
        self._tensors: dict[str, torch.Tensor] = {}
        self._logits = torch.empty(0, vocab_size)

    def of(self, rows: int) -> dict[str, torch.Tensor]:
        """Buffers of at least so many rows, by name, the workspace among them."""
        if rows > self._rows:
            self._rows = rows
            self._tensors = {name: torch.empty(rows, w) for name, w in self._widths.items()}
            widest = max(self._widths.values())
            self._tensors["workspace"] = make_workspace(self._library, rows, widest)
        return self._tensors

    def logits(self, count: int) -> torch.Tensor:
        """`[count, vocab_size]`."""
        if len(self._logits) < count:
            self._logits = torch.empty(count, self._logits.shape[1])
        return self._logits[:count]


class Batch:
    """The indices of one step, kept while the helper reads them."""

    def __init__(self, chunks: list[Chunk], rows: list[int]) -> None:
        counts = [chunk.num_tokens for chunk in chunks]
        self._starts = np.array([chunk.start for chunk in chunks], np.int64)
        self._first_rows = np.zeros(len(chunks) + 1, np.int64)
        np.cumsum(counts, out=self._first_rows[1:])
        owners = np.repeat(np.arange(len(chunks)), counts)
        offsets = self._starts - self._first_rows[:-1]
        self._positions = np.arange(len(owners)) + offsets[owners]
        self._blocks = _block_table(chunks)
        blocks = self._blocks[owners, self._positions // BLOCK_SIZE].astype(np.int64)
        self._slots = blocks * BLOCK_SIZE + self._positions % BLOCK_SIZE
        self._outputs = np.array(rows, np.int64)

    def struct(self, buffers: dict[str, torch.Tensor], logits: torch.Tensor) -> BatchStruct:
        """The structure that points to all of it."""
        sequences = SequencesStruct(
            count=len(self._starts),
            first_rows=self._first_rows.ctypes.data,
            starts=self._starts.ctypes.data,
            blocks=self._blocks.ctypes.data,
            max_blocks=self._blocks.shape[1],
        )
        return BatchStruct(
            rows=len(self._positions),
            positions=self._positions.ctypes.data,
            slots=self._slots.ctypes.data,
            sequences=sequences,
            num_outputs=len(self._outputs),
            outputs=self._outputs.ctypes.data,
            logits=logits.data_ptr(),
            **{name: buffer.data_ptr() for name, buffer in buffers.items()},
        )


def _block_table(chunks: list[Chunk]) -> npt.NDArray[np.int32]:
    """`[len(chunks), most blocks]`; places that nobody reads hold block 0."""
    tables = [chunk.seq.block_ids[: -(-chunk.end // BLOCK_SIZE)] for chunk in chunks]
    table = np.zeros((len(tables), max(map(len, tables))), np.int32)
    for row, blocks in zip(table, tables, strict=True):
        row[: len(blocks)] = blocks
    return table
