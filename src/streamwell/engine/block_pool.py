"""Who owns which block of the paged KV cache. Only integers; the tensors are in `attention`.

Rules:
1. A block is free, or held; a held block has a reference count of at least one.
2. Whoever allocates or retains a block releases it, once.
3. `num_free + held blocks == num_blocks`, always; `check_integrity` proves it.

Block 0 is never handed out: padded positions point at it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class BlockPool:
    """Hands out blocks of `block_size` token positions."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        """`num_blocks` counts usable blocks; ids run from 1 to `num_blocks`."""
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = list(range(num_blocks, 0, -1))
        self._ref_counts: dict[int, int] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return self.num_blocks - len(self._free)

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks hold this many tokens."""
        return -(-num_tokens // self.block_size)

    def allocate(self, count: int) -> list[int] | None:
        """Take `count` blocks with one reference each, or none at all."""
        if count > len(self._free):
            return None
        taken = [self._free.pop() for _ in range(count)]
        self._ref_counts.update(dict.fromkeys(taken, 1))
        return taken

    def retain(self, block_ids: Iterable[int]) -> None:
        """Add a reference to blocks that are held already."""
        for block_id in block_ids:
            self._ref_counts[block_id] += 1

    def release(self, block_ids: Iterable[int]) -> None:
        """Give up one reference to each block; the last one frees it."""
        for block_id in block_ids:
            self._ref_counts[block_id] -= 1
            if self._ref_counts[block_id] == 0:
                del self._ref_counts[block_id]
                self._free.append(block_id)

    def check_integrity(self, holders: Iterable[Iterable[int]]) -> None:
        """Compare the books with what the holders say they hold.

        Raises:
            RuntimeError: a block is lost, handed out twice, or counted wrongly.
        """
        held = Counter(block_id for holder in holders for block_id in holder)
        if dict(held) != self._ref_counts:
            raise RuntimeError(f"blocks held {dict(held)} differ from counts {self._ref_counts}")
        if sorted([*self._free, *held]) != list(range(1, self.num_blocks + 1)):
            raise RuntimeError("free and held blocks do not add up to the pool")
