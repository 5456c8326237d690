"""What sequences hold of the KV cache: blocks of their own, and blocks that they share. Pure.

Rules:
1. A sequence that runs has blocks for all of its tokens, and for all that its encoder reads. It
   gives them back together, in one place.
2. A block that is full can be found by others with the same beginning and salt, once its tokens
   are computed; by the draft model too, which has its own cache under the same block ids.
3. What a decoder caches depends on what its encoder has read, which is in no key: a sequence with
   an encoder shares nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamwell.engine.block_pool import BlockPool
from streamwell.engine.sequence import Sequence


class Holdings:
    """Writes the block ids of sequences, and how many of their tokens are computed."""

    def __init__(self, pool: BlockPool, *, enable_prefix_caching: bool) -> None:
        self._pool = pool
        self._enable_prefix_caching = enable_prefix_caching
        #: Prompt tokens that were looked for in the prefix cache, and those that were there.
        self.num_queried_tokens = 0
        self.num_hit_tokens = 0

    def take_prefix(self, seq: Sequence) -> None:
        """Take over what the cache has of a sequence's tokens, but for the last one."""
        num_blocks = (seq.num_tokens - 1) // self._pool.block_size
        seq.block_ids = self._pool.take_over(self._keys(seq)[:num_blocks])
        seq.num_computed_tokens = len(seq.block_ids) * self._pool.block_size
        seq.num_drafted_tokens = seq.num_computed_tokens

    def is_coming(self, seq: Sequence, others: Iterable[Sequence]) -> bool:
        """Whether the block that a sequence needs next is what one of the others will compute."""
        at = len(seq.block_ids)
        key = self._keys(seq)[at : at + 1]
        if not key or seq.num_uncomputed_tokens <= self._pool.block_size:
            return False
        return any(
            other.num_computed_tokens < seq.num_computed_tokens + self._pool.block_size
            and self._keys(other)[at : at + 1] == key
            for other in others
        )

    def count_hit(self, seq: Sequence) -> None:
        """Only the first admission counts: what is found after a preemption was its own."""
        if seq.num_cached_tokens is None and self._is_shared(seq):
            seq.num_cached_tokens = seq.num_computed_tokens
            self.num_queried_tokens += seq.num_tokens  # with what a resumed run has generated
            self.num_hit_tokens += seq.num_computed_tokens

    def settle(self, seq: Sequence) -> bool:
        """Give a sequence that is to run all blocks that it lacks.

        False if there are not enough; then it has to be freed.
        """
        if seq.encoder_ids:
            cross = self._pool.allocate(self._pool.blocks_for(len(seq.encoder_ids)))
            if cross is None:
                return False
            seq.cross_block_ids = cross
        return self.grow(seq, seq.num_tokens)

    def grow(self, seq: Sequence, num_tokens: int) -> bool:
        """Give it blocks for `num_tokens` tokens; false if there are not enough."""
        missing = self._pool.blocks_for(num_tokens) - len(seq.block_ids)
        if missing <= 0:
            return True
        blocks = self._pool.allocate(missing)
        if blocks is None:
            return False
        seq.block_ids.extend(blocks)
        return True

    def advance(
        self, seq: Sequence, num_computed_tokens: int, num_drafted_tokens: int | None = None
    ) -> None:
        """So many tokens are in the cache now; blocks that are full can be shared from now on.

        Not those that the draft model has computed less of: `None` is as many, or more.
        """
        size = self._pool.block_size
        drafted = num_computed_tokens if num_drafted_tokens is None else num_drafted_tokens
        drafted = min(drafted, num_computed_tokens)  # it may have computed wrong guesses
        first, end = seq.num_drafted_tokens // size, drafted // size
        seq.num_computed_tokens, seq.num_drafted_tokens = num_computed_tokens, drafted
        if first < end:
            keys = self._keys(seq)[first:end]
            for block_id, key in zip(seq.block_ids[first:], keys, strict=False):
                self._pool.publish(block_id, key)

    def condemn(self, seq: Sequence) -> None:
        """Whatever is in its blocks, nobody else shall have it."""
        self._pool.forget(seq.block_ids)

    def free(self, seq: Sequence) -> None:
        """The one place where a sequence gives its blocks back."""
        self._pool.release(seq.block_ids)
        self._pool.release(seq.cross_block_ids)
        seq.block_ids.clear()
        seq.cross_block_ids.clear()
        seq.num_computed_tokens = seq.num_drafted_tokens = 0

    def check_integrity(self, seqs: Iterable[Sequence]) -> None:
        """Raises `RuntimeError` unless every block has exactly one story."""
        self._pool.check_integrity([*seq.block_ids, *seq.cross_block_ids] for seq in seqs)

    def _is_shared(self, seq: Sequence) -> bool:
        return self._enable_prefix_caching and not seq.encoder_ids

    def _keys(self, seq: Sequence) -> list[bytes]:
        """The keys of all full blocks of a sequence; none if it shares nothing."""
        size = self._pool.block_size
        return seq.block_keys(seq.num_tokens // size, size) if self._is_shared(seq) else []
