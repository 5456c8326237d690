"""The books of the KV cache: every block is free, or held as often as someone says so."""

from __future__ import annotations

from random import Random

import pytest

from streamwell.engine.block_pool import BlockPool


@pytest.mark.parametrize(
    ("num_tokens", "expected"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)]
)
def test_tokens_are_rounded_up_to_blocks(num_tokens: int, expected: int) -> None:
    """A block that is only partly used is a whole block."""
    assert expected == BlockPool(8, 4).blocks_for(num_tokens)


def test_every_block_is_handed_out_once_and_never_block_zero() -> None:
    """All usable blocks can be held at once; the padding block is not among them."""
    pool = BlockPool(6, 4)

    taken = [*(pool.allocate(2) or []), *(pool.allocate(4) or [])]

    assert [1, 2, 3, 4, 5, 6] == sorted(taken)
    assert (0, 6) == (pool.num_free, pool.num_used)
    pool.check_integrity([taken])


def test_allocation_is_all_or_nothing() -> None:
    """When there are too few blocks, none is taken."""
    pool = BlockPool(3, 4)
    held = pool.allocate(2)

    assert pool.allocate(2) is None

    assert (1, 2) == (pool.num_free, pool.num_used)
    assert held is not None
    pool.check_integrity([held])


def test_nothing_can_always_be_allocated() -> None:
    """Zero blocks are there even when the pool is used up."""
    pool = BlockPool(1, 4)
    pool.allocate(1)

    assert [] == pool.allocate(0)


def test_a_shared_block_is_held_until_its_last_release() -> None:
    """Each holder gives up its own reference; then it is cached, and as good as free."""
    pool = BlockPool(2, 4)
    blocks = pool.allocate(1) or []
    pool.publish(blocks[0], b"key")
    assert blocks == pool.take_over([b"key"])
    pool.check_integrity([blocks, blocks])

    pool.release(blocks)
    assert (1, 1, 0) == (pool.num_used, pool.num_free, pool.num_cached)
    pool.check_integrity([blocks])

    pool.release(blocks)
    assert (0, 1, 1) == (pool.num_used, pool.num_free, pool.num_cached)
    pool.check_integrity([])


def test_a_cached_block_is_found_by_its_key() -> None:
    """What nobody holds any longer can be taken over, up to the first key that is unknown."""
    pool = BlockPool(4, 4)
    first, second, third = pool.allocate(3) or []
    for block_id, key in ((first, b"1"), (second, b"2"), (third, b"3")):
        pool.publish(block_id, key)
    pool.release([first, second, third])

    taken = pool.take_over([b"1", b"2", b"other", b"3"])

    assert [first, second] == taken
    assert (2, 1) == (pool.num_used, pool.num_cached)
    pool.check_integrity([taken])


def test_the_longest_unused_block_is_evicted_first() -> None:
    """Free blocks are used up before; of one holder's blocks the last goes first."""
    pool = BlockPool(5, 4)
    old, new = pool.allocate(2) or [], pool.allocate(2) or []
    for block_id in (*old, *new):
        pool.publish(block_id, b"%d" % block_id)
    pool.release(old)
    pool.release(new)
    pool.release(pool.take_over([b"%d" % old[0]]))  # used again: now it is the youngest

    order = [pool.allocate(1) for _ in range(5)]

    assert [[5], [old[1]], [new[1]], [new[0]], [old[0]]] == order
    assert pool.allocate(1) is None
    assert [] == pool.take_over([b"%d" % old[0]])
    pool.check_integrity(block for block in order if block)


def test_the_first_block_of_a_key_keeps_it() -> None:
    """Two who computed the same hold a block each; only one of them can be found."""
    pool = BlockPool(2, 4)
    first, second = pool.allocate(2) or []
    pool.publish(first, b"key")
    pool.publish(second, b"key")
    pool.check_integrity([[first, second]])

    pool.release([first, second])

    assert (1, 1) == (pool.num_free, pool.num_cached)
    assert [first] == pool.take_over([b"key"])


def test_forgotten_blocks_are_not_found() -> None:
    """Without its key a block stays with its holders, and is free after the last of them."""
    pool = BlockPool(2, 4)
    blocks = pool.allocate(1) or []
    pool.publish(blocks[0], b"key")

    pool.forget([1, 2])

    assert [] == pool.take_over([b"key"])
    pool.check_integrity([blocks])
    pool.release(blocks)
    assert (2, 0) == (pool.num_free, pool.num_cached)


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_block_that_nobody_holds_can_be_neither_released_nor_published(is_cached: bool) -> None:
    """A double release, or a key for a block of nobody, is an error at once."""
    pool = BlockPool(2, 4)
    blocks = pool.allocate(1) or []
    if is_cached:
        pool.publish(blocks[0], b"key")
    pool.release(blocks)

    with pytest.raises(KeyError):
        pool.release(blocks)
    with pytest.raises(KeyError):
        pool.publish(blocks[0], b"other")
    pool.check_integrity([])


@pytest.mark.parametrize(
    "holders",
    [
        pytest.param([[1]], id="a held block that nobody names"),
        pytest.param([[1, 2], [2]], id="a block named once too often"),
        pytest.param([[1, 2, 3]], id="a free block that somebody names"),
        pytest.param([[1, 2], [0]], id="the padding block"),
    ],
)
def test_integrity_check_sees_wrong_books(holders: list[list[int]]) -> None:
    """What the holders say must be what the pool counted."""
    pool = BlockPool(3, 4)
    assert [1, 2] == pool.allocate(2)
    pool.check_integrity([[1, 2]])

    with pytest.raises(RuntimeError):
        pool.check_integrity(holders)


def _gain(pool: BlockPool, rng: Random) -> list[int] | None:
    """Blocks for a new holder, free ones or known ones, if there are any."""
    if rng.random() < 0.6:
        count, room = rng.randint(0, 6), pool.num_free + pool.num_cached
        blocks = pool.allocate(count)
        assert (count <= room) == (blocks is not None)
        return blocks
    return pool.take_over(dict.fromkeys(b"%d" % rng.randrange(8) for _ in range(3)))


@pytest.mark.parametrize("seed", range(4))
def test_books_balance_on_a_random_walk(seed: int) -> None:
    """Allocations, shares, keys and releases in any order lose no block and invent none."""
    rng = Random(seed)
    pool = BlockPool(rng.randint(1, 24), 4)
    holders: list[list[int]] = []
    for _ in range(500):
        if not holders or rng.random() < 0.6:
            holders += filter(None, [_gain(pool, rng)])
        elif rng.random() < 0.5:
            pool.publish(rng.choice(rng.choice(holders)), b"%d" % rng.randrange(8))
        elif rng.random() < 0.1:
            pool.forget(rng.choice(holders))
        else:
            pool.release(holders.pop(rng.randrange(len(holders))))
        pool.check_integrity(holders)
        assert pool.num_used == len({block for held in holders for block in held})
        assert pool.num_blocks == pool.num_free + pool.num_used + pool.num_cached

    for held in holders:
        pool.release(held)
    pool.check_integrity([])
    assert (0, pool.num_blocks) == (pool.num_used, pool.num_free + pool.num_cached)
