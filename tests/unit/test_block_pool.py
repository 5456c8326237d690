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


def test_a_shared_block_is_free_after_its_last_release() -> None:
    """Each holder gives up its own reference; only the last one frees the block."""
    pool = BlockPool(2, 4)
    blocks = pool.allocate(1) or []
    pool.retain(blocks)
    pool.check_integrity([blocks, blocks])

    pool.release(blocks)
    assert 1 == pool.num_used
    pool.check_integrity([blocks])

    pool.release(blocks)
    assert 0 == pool.num_used
    pool.check_integrity([])


@pytest.mark.parametrize("operation", ["retain", "release"])
def test_a_free_block_can_be_neither_retained_nor_released(operation: str) -> None:
    """A double release, or a reference to a block nobody holds, is an error at once."""
    pool = BlockPool(2, 4)
    blocks = pool.allocate(1) or []
    pool.release(blocks)

    with pytest.raises(KeyError):
        getattr(pool, operation)(blocks)


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


@pytest.mark.parametrize("seed", range(4))
def test_books_balance_on_a_random_walk(seed: int) -> None:
    """Allocations, shares and releases in any order lose no block and invent none."""
    rng = Random(seed)
    pool = BlockPool(rng.randint(1, 24), 4)
    holders: list[list[int]] = []
    for _ in range(500):
        choice = rng.random()
        if choice < 0.45:
            count = rng.randint(0, 6)
            num_free = pool.num_free
            blocks = pool.allocate(count)
            assert (count <= num_free) == (blocks is not None)
            holders += [blocks] if blocks else []
        elif choice < 0.6 and holders:
            shared = list(rng.choice(holders))
            pool.retain(shared)
            holders.append(shared)
        elif holders:
            pool.release(holders.pop(rng.randrange(len(holders))))
        pool.check_integrity(holders)
        assert pool.num_blocks == pool.num_free + len({b for held in holders for b in held})

    for held in holders:
        pool.release(held)
    pool.check_integrity([])
    assert pool.num_blocks == pool.num_free
