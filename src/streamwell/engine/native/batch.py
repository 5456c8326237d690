"""What one step hands to the helper: indices, and memory to compute in."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from streamwell.engine.native import BLOCK_SIZE
from streamwell.engine.native.linear import make_workspace
from streamwell.engine.native.structures import BatchStruct, SequencesStruct
from streamwell.engine.sequence import Chunk

Integers = npt.NDArray[np.int64]


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


class Rows:
    """Rows of a step by their sequences, and the keys that they see."""

    def __init__(
        self,
        starts: list[int],
        counts: list[int],
        tables: Sequence[Sequence[int]],
        lengths: list[int] | None = None,
    ) -> None:
        """Sequence `i` has `counts[i]` rows from position `starts[i]` on.

        Args:
            starts: of each sequence.
            counts: of each sequence.
            tables: the cache blocks of what they see, in order.
            lengths: how many keys all rows of a sequence see; if not given, each sees those up to
                itself.
        """
        self._starts = np.array(starts, np.int64)
        self._first_rows = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(counts, out=self._first_rows[1:])
        self._owners = np.repeat(np.arange(len(starts)), counts)
        offsets = self._starts - self._first_rows[:-1]
        #: `[rows]`.
        self.positions: Integers = np.arange(len(self._owners)) + offsets[self._owners]
        self._lengths = None if lengths is None else np.array(lengths, np.int64)
        self._blocks = _block_table(tables)

    @property
    def count(self) -> int:
        return len(self.positions)

    def slots(self) -> Integers:
        """`[rows]`: the places of the rows' positions in the cache."""
        blocks = self._blocks[self._owners, self.positions // BLOCK_SIZE].astype(np.int64)
        return blocks * BLOCK_SIZE + self.positions % BLOCK_SIZE

    def struct(self) -> SequencesStruct:
        """The structure that points to all of it."""
        return SequencesStruct(
            count=len(self._starts),
            first_rows=self._first_rows.ctypes.data,
            starts=self._starts.ctypes.data,
            lengths=None if self._lengths is None else self._lengths.ctypes.data,
            blocks=self._blocks.ctypes.data,
            max_blocks=self._blocks.shape[1],
        )


def rows_of(chunks: list[Chunk]) -> Rows:
    """The chunks' tokens, which see those of their own sequence up to themselves."""
    starts, counts = [c.start for c in chunks], [c.num_tokens for c in chunks]
    return Rows(starts, counts, [c.seq.block_ids[: -(-c.end // BLOCK_SIZE)] for c in chunks])


def token_ids_of(chunks: list[Chunk]) -> Integers:
    """`[rows]`."""
    return np.array([i for chunk in chunks for i in chunk.token_ids], np.int64)


class Batch:
    """The indices of one step, kept while the helper reads them."""

    def __init__(
        self,
        rows: Rows,
        outputs: list[int],
        *,
        cross: Rows | None = None,
        cross_slots: Integers | None = None,
        adapters: Integers | None = None,
    ) -> None:
        """Some rows have outputs.

        Args:
            rows: of the step.
            outputs: which of them have outputs.
            cross: what a decoder sees of an encoder's output.
            cross_slots: where an encoder writes that.
            adapters: where each sequence's adapter is, 0 for none.
        """
        self._rows, self._cross, self._cross_slots = rows, cross, cross_slots
        self._adapters = adapters
        self._slots = rows.slots()
        self._outputs = np.array(outputs, np.int64)

    def struct(
        self, buffers: dict[str, torch.Tensor], logits: torch.Tensor | None = None
    ) -> BatchStruct:
        """The structure that points to all of it."""
        cross, cross_slots, adapters = self._cross, self._cross_slots, self._adapters
        return BatchStruct(
            rows=self._rows.count,
            positions=self._rows.positions.ctypes.data,
            slots=self._slots.ctypes.data,
            cross_slots=None if cross_slots is None else cross_slots.ctypes.data,
            sequences=self._rows.struct(),
            cross=SequencesStruct() if cross is None else cross.struct(),
            num_outputs=len(self._outputs),
            outputs=self._outputs.ctypes.data,
            adapters=None if adapters is None else adapters.ctypes.data,
            max_between=buffers["between"].shape[1] if "between" in buffers else 0,
            logits=None if logits is None else logits.data_ptr(),
            **{name: buffer.data_ptr() for name, buffer in buffers.items()},
        )


def _block_table(tables: Sequence[Sequence[int]]) -> npt.NDArray[np.int32]:
    """`[len(tables), most blocks]`; places that nobody reads hold block 0."""
    table = np.zeros((len(tables), max(map(len, tables))), np.int32)
    for row, blocks in zip(table, tables, strict=True):
        row[: len(blocks)] = blocks
    return table
