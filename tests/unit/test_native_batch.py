"""What the native helper is told of a step."""

from __future__ import annotations

import ctypes

from streamwell.core.types import SamplingParams
from streamwell.engine.native.batch import (
    Batch,
    Buffers,
    Rows,
    integers,
    rows_of,
    token_ids_of,
)
from streamwell.engine.native.structures import SequencesStruct
from streamwell.engine.sequence import Chunk, Sequence


class Library:
    """The one function that buffers ask for."""

    def sw_workspace_bytes(self, rows: int, in_features: int) -> int:
        return rows * in_features


def chunk(first: int, count: int, block_ids: list[int]) -> Chunk:
    ids = list(range(100, 100 + first + count))
    seq = Sequence("", ids, SamplingParams(max_tokens=1), block_ids=block_ids)
    return Chunk(seq, first, count)


def read(where: int, count: int, kind: type = ctypes.c_int64) -> list[int]:
    return list((kind * count).from_address(where))


def sequences(struct: SequencesStruct) -> dict[str, list[int]]:
    count = struct.count
    return {
        "first_rows": read(struct.first_rows, count + 1),
        "starts": read(struct.starts, count),
        "blocks": read(struct.blocks, count * struct.max_blocks, ctypes.c_int32),
    }


def test_rows_lie_end_to_end_each_at_its_place_in_the_cache() -> None:
    """A decode at position 33, and a chunk over the border of two blocks."""
    rows = rows_of([chunk(33, 1, [7, 2, 9, 4]), chunk(14, 3, [5, 1])])

    assert list(rows.positions) == [33, 14, 15, 16]
    assert list(rows.slots()) == [9 * 16 + 1, 5 * 16 + 14, 5 * 16 + 15, 16]
    assert sequences(rows.struct()) == {
        "first_rows": [0, 1, 4],
        "starts": [33, 14],
        "blocks": [7, 2, 9, 5, 1, 0],  # no block that the decode does not see; and none is block 0
    }
    assert rows.struct().lengths is None


def test_rows_that_all_see_as_many_keys_say_how_many() -> None:
    """An encoder's input, or a decoder's look at it."""
    rows = Rows([0, 0], [1, 2], [range(3), [8]], [40, 2])
    struct = rows.struct()

    assert read(struct.lengths, 2) == [40, 2]
    assert sequences(struct)["blocks"] == [0, 1, 2, 8, 0, 0]


def test_token_ids_are_those_of_the_chunks() -> None:
    """Not of their whole sequences."""
    assert list(token_ids_of([chunk(2, 1, [1]), chunk(0, 2, [2])])) == [102, 100, 101]


def test_a_batch_points_to_its_indices_and_buffers() -> None:
    """Buffers of more rows serve a step of fewer."""
    buffers = Buffers(Library(), {"x": 4, "inner": 8, "between": 3}, vocab_size=5)  # type: ignore[arg-type]
    x = buffers.of(3)["x"]
    rows = rows_of([chunk(33, 1, [7, 2, 9])])
    batch = Batch(rows, [0])

    struct = batch.struct(buffers, buffers.logits(1))

    assert (struct.rows, struct.num_outputs, struct.max_between) == (1, 1, 3)
    assert read(struct.positions, 1) == [33]
    assert read(struct.slots, 1) == [9 * 16 + 1]
    assert read(struct.outputs, 1) == [0]
    assert struct.x == x.data_ptr() == buffers.of(2)["x"].data_ptr()
    assert struct.logits == buffers.logits(1).data_ptr()
    assert (struct.cross.count, struct.cross_slots, struct.adapters) == (0, None, None)


def test_buffers_that_grow_are_where_they_grew() -> None:
    """The helper would write beyond the end of the old ones."""
    buffers = Buffers(Library(), {"x": 4}, vocab_size=5)  # type: ignore[arg-type]
    old = buffers.of(1)["x"]
    new = buffers.of(5)["x"]
    batch = Batch(rows_of([chunk(0, 5, [1])]), [4])

    assert batch.struct(buffers).x == new.data_ptr() != old.data_ptr()


def test_a_batch_points_to_adapters_and_to_what_is_seen_across() -> None:
    """Of an encoder-decoder, and of sequences with adapters."""
    buffers = Buffers(Library(), {"x": 4}, vocab_size=5)  # type: ignore[arg-type]
    cross = Rows([0], [1], [[6]], [9])
    slots, adapters = integers([96]), integers([4096])
    batch = Batch(
        rows_of([chunk(0, 1, [1])]), [0], cross=cross, cross_slots=slots, adapters=adapters
    )

    struct = batch.struct(buffers)

    assert read(struct.cross.lengths, 1) == [9]
    assert read(struct.cross.blocks, 1, ctypes.c_int32) == [6]
    assert read(struct.cross_slots, 1) == [96]
    assert read(struct.adapters, 1) == [4096]


def test_logits_are_the_same_memory_until_it_grows() -> None:
    """Views of what was before would keep it, and be read in vain."""
    buffers = Buffers(Library(), {"x": 4}, vocab_size=5)  # type: ignore[arg-type]
    one, two = buffers.logits(1), buffers.logits(2)

    assert one.shape == (1, 5)
    assert buffers.logits(1).data_ptr() == two.data_ptr() != one.data_ptr()
