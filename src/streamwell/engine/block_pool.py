"""Who owns which block of the paged KV cache. Only ids and keys; the tensors are in `attention`.

Rules:
1. A block is free, held or cached. A held block has a reference count of at least one. A cached
   one is held by nobody and keeps the contents that its key names, until the room is needed.
2. Whoever allocates a block or takes one over releases it, once.
3. free + held + cached == `num_blocks`, always; `check_integrity` proves it.
4. A key belongs to one block, and a block with a key is full: nobody writes to it any more, so
   any number of sequences may hold it.
5. Free blocks are handed out before cached ones, and of these the longest unused comes first.

Block 0 is never handed out: padded positions point at it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence


class BlockPool:
    """Hands out blocks of `block_size` token positions."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        """`num_blocks` counts usable blocks; ids run from 1 to `num_blocks`."""
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = list(range(num_blocks, 0, -1))
        self._ref_counts: dict[int, int] = {}
        #: Blocks that nobody holds, but that have a key; the longest unused first.
        self._cached: OrderedDict[int, None] = OrderedDict()
        #: Keys of held and cached blocks, both ways.
        self._keys: dict[int, bytes] = {}
        self._by_key: dict[bytes, int] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_used(self) -> int:
        """Blocks that somebody holds; a shared one counts once, a cached one not at all."""
        return len(self._ref_counts)

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks hold this many tokens."""
        return -(-num_tokens // self.block_size)

    def allocate(self, count: int) -> list[int] | None:
        """Take `count` blocks with one reference each, or none at all."""
        if count > len(self._free) + len(self._cached):
            return None
        taken = [self._free.pop() if self._free else self._evict() for _ in range(count)]
        self._ref_counts.update(dict.fromkeys(taken, 1))
        return taken

    def publish(self, block_id: int, key: bytes) -> None:
        """Let a held, full block be found by its key; who has a partner already keeps that.

        Raises:
            KeyError: nobody holds the block.
        """
        if block_id not in self._ref_counts:
            raise KeyError(block_id)
        if key not in self._by_key and block_id not in self._keys:
            self._by_key[key] = block_id
            self._keys[block_id] = key

    def take_over(self, keys: Iterable[bytes]) -> list[int]:
        """Add a reference to the blocks of these keys, up to the first key that is unknown."""
        taken = []
        for key in keys:
            block_id = self._by_key.get(key)
            if block_id is None:
                break
            self._cached.pop(block_id, None)
            self._ref_counts[block_id] = self._ref_counts.get(block_id, 0) + 1
            taken.append(block_id)
        return taken

    def forget(self, block_ids: Iterable[int]) -> None:
        """Take the keys of held blocks away: what is in them is not to be used again."""
        for block_id in block_ids:
            if block_id in self._keys:
                del self._by_key[self._keys.pop(block_id)]

    def release(self, block_ids: Sequence[int]) -> None:
        """Give up one reference to each block; without any it is free, or cached if it has a key.

        The last block goes first: what it says is worthless without those before it, so these
        are to be evicted later.

        Raises:
            KeyError: nobody holds one of them.
        """
        for block_id in reversed(block_ids):
            self._ref_counts[block_id] -= 1
            if self._ref_counts[block_id] == 0:
                del self._ref_counts[block_id]
                if block_id in self._keys:
                    self._cached[block_id] = None
                else:
                    self._free.append(block_id)

    def check_integrity(self, holders: Iterable[Iterable[int]]) -> None:
        """Compare the books with what the holders say they hold.

        Raises:
            RuntimeError: a block is lost, handed out twice, or counted wrongly.
        """
        held = Counter(block_id for holder in holders for block_id in holder)
        if dict(held) != self._ref_counts:
            raise RuntimeError(f"blocks held {dict(held)} differ from counts {self._ref_counts}")
        if sorted([*self._free, *held, *self._cached]) != list(range(1, self.num_blocks + 1)):
            raise RuntimeError("free, held and cached blocks do not add up to the pool")
        if {key: block_id for block_id, key in self._keys.items()} != self._by_key:
            raise RuntimeError("keys and blocks do not match")
        if not self._cached.keys() <= self._keys.keys() <= self._cached.keys() | held.keys():
            raise RuntimeError("a cached block has no key, or a free one has one")

    def _evict(self) -> int:
        block_id, _ = self._cached.popitem(last=False)
        self.forget((block_id,))
        return block_id
