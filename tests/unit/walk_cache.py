"""A KV cache without tensors: each position keeps what a real one would be a function of."""

from __future__ import annotations

from streamwell.engine.sequence import Chunk, Sequence


class FakeCache:
    """What was written where; reading anything but one's own past is an error."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._slots: dict[int, int] = {}
        #: Per sequence, a hash of each of its beginnings, the salt included.
        self._pasts: dict[Sequence, list[int]] = {}

    def write(self, chunk: Chunk) -> None:
        """Compute a chunk: what each position holds depends on all tokens up to it."""
        slots = self._slots_of(chunk.seq, chunk.end)[chunk.start :]
        own = self._past(chunk.seq, chunk.end)
        past = own[chunk.start - 1] if chunk.start else chunk.seq.cache_salt
        for slot, token_id in zip(slots, chunk.token_ids, strict=True):
            past = hash((past, token_id))
            self._slots[slot] = past

    def check(self, seq: Sequence, num_tokens: int) -> None:
        """The first `num_tokens` positions hold this sequence's own past, and nobody else's."""
        slots = self._slots_of(seq, num_tokens)
        assert self._past(seq, num_tokens)[:num_tokens] == [self._slots[slot] for slot in slots]

    def _slots_of(self, seq: Sequence, num_tokens: int) -> list[int]:
        size = self._block_size
        slots = [
            slot for block in seq.block_ids for slot in range(block * size, block * size + size)
        ]
        return slots[:num_tokens]

    def _past(self, seq: Sequence, num_tokens: int) -> list[int]:
        past = self._pasts.setdefault(seq, [])
        for token_id in seq.token_ids[len(past) : num_tokens]:
            past.append(hash((past[-1] if past else seq.cache_salt, token_id)))
        return past
