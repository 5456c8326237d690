"""What one step hands to the helper: indices, and memory to compute in."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias

import torch

from streamwell.engine.native import BLOCK_SIZE
from streamwell.engine.native.linear import make_workspace
from streamwell.engine.native.structures import BatchStruct, SequencesStruct
from streamwell.engine.sequence import Chunk

#: Of 64 bits, or of 32: after a step's arithmetic nothing else is in the caches, and Python's own
#: arrays touch less memory than NumPy's or PyTorch's, which a small model's step feels.
Integers: TypeAlias = "array[int]"


class Buffers:
    """Memory that every step uses again; it grows to the largest step ever seen."""

    def __init__(self, library: ctypes.CDLL, widths: dict[str, int], vocab_size: int) -> None:
        """`widths` are the floats per row of each buffer, by its name in the structure."""
        self._library = library
        self.widths = widths
        self._rows = 0
        self._tensors: dict[str, torch.Tensor] = {}
        #: Of the tensors, by their names.
        self.addresses: dict[str, int] = {}
        self._logits = torch.empty(0, vocab_size)
        #: The first rows of it, by their number: that many are asked for step after step.
        self._first_logits: dict[int, torch.Tensor] = {}

    def of(self, rows: int) -> dict[str, torch.Tensor]:
        """Buffers of at least so many rows, by name, the workspace among them."""
        if rows > self._rows:
            self._rows = rows
            self._tensors = {name: torch.empty(rows, w) for name, w in self.widths.items()}
            widest = max(self.widths.values())
            self._tensors["workspace"] = make_workspace(self._library, rows, widest)
            self.addresses = {name: tensor.data_ptr() for name, tensor in self._tensors.items()}
        return self._tensors

    def logits(self, count: int) -> torch.Tensor:
        """`[count, vocab_size]`."""
        if len(self._logits) < count:
            self._logits = torch.empty(count, self._logits.shape[1])
            self._first_logits.clear()
        if count not in self._first_logits:
            self._first_logits[count] = self._logits[:count]
        return self._first_logits[count]


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
        spans = [range(start, start + n) for start, n in zip(starts, counts, strict=True)]
        #: `[rows]`.
        self.positions = integers(p for span in spans for p in span)
        self._starts = integers(starts)
        self._first_rows = integers(accumulate(counts, initial=0))
        self._lengths = None if lengths is None else integers(lengths)
        self._spans, self._tables = spans, tables
        self._max_blocks = max(map(len, tables))
        self._blocks = _block_table(tables, self._max_blocks)

    @property
    def count(self) -> int:
        return len(self.positions)

    def slots(self) -> Integers:
        """`[rows]`: the places of the rows' positions in the cache."""
        return integers(
            table[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE
            for span, table in zip(self._spans, self._tables, strict=True)
            for position in span
        )

    def struct(self) -> SequencesStruct:
        """The structure that points to all of it."""
        return SequencesStruct(
            count=len(self._starts),
            first_rows=_address(self._first_rows),
            starts=_address(self._starts),
            lengths=_address(self._lengths),
            blocks=_address(self._blocks),
            max_blocks=self._max_blocks,
        )


def rows_of(chunks: list[Chunk]) -> Rows:
    """The chunks' tokens, which see those of their own sequence up to themselves."""
    starts, counts = [c.start for c in chunks], [c.num_tokens for c in chunks]
    return Rows(starts, counts, [c.seq.block_ids[: -(-c.end // BLOCK_SIZE)] for c in chunks])


def token_ids_of(chunks: list[Chunk]) -> Integers:
    """`[rows]`."""
    return integers(i for chunk in chunks for i in chunk.token_ids)


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
        self._outputs = integers(outputs)

    def struct(self, buffers: Buffers, logits: torch.Tensor | None = None) -> BatchStruct:
        """The structure that points to all of it; `buffers` have at least as many rows."""
        return BatchStruct(
            rows=self._rows.count,
            positions=_address(self._rows.positions),
            slots=_address(self._slots),
            cross_slots=_address(self._cross_slots),
            sequences=self._rows.struct(),
            cross=SequencesStruct() if self._cross is None else self._cross.struct(),
            num_outputs=len(self._outputs),
            outputs=_address(self._outputs),
            adapters=_address(self._adapters),
            max_between=buffers.widths.get("between", 0),
            logits=None if logits is None else logits.data_ptr(),
            **buffers.addresses,
        )


def integers(values: Iterable[int]) -> Integers:
    """Of 64 bits."""
    return array("q", values)


def _address(values: Integers | None) -> int | None:
    """Where they are; the caller keeps them."""
    return None if values is None else values.buffer_info()[0]


def _block_table(tables: Sequence[Sequence[int]], width: int) -> Integers:
    """`[len(tables), width]` of 32 bits; places that nobody reads hold block 0."""
    blocks = array("i")
    for table in tables:
        blocks.extend(table)
        blocks.extend([0] * (width - len(table)))
    return blocks
