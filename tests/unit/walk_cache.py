"""A KV cache without tensors: each position keeps what a real one would be a function of."""

from __future__ import annotations

from streamwell.engine.sequence import Chunk, Sequence


class FakeCache:
    """What was written where; reading anything but one's own past is an error."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._slots: dict[int, int] = {}
        #: Per sequence, a hash of each of its beginnings, with its salt and what its encoder read.
        self._pasts: dict[Sequence, list[int]] = {}

    def write(self, chunk: Chunk) -> None:
        """Compute a chunk: what each position holds depends on all tokens up to it.

        What an encoder leaves depends on all that it reads.
        """
        cross = _slots(chunk.seq.cross_block_ids, self._block_size)
        for at in range(len(chunk.encoder_ids)):
            self._slots[cross[at]] = hash((chunk.encoder_ids, at))
        slots = self._slots_of(chunk.seq, chunk.end)[chunk.start :]
        own = self._past(chunk.seq, chunk.end)
        past = own[chunk.start - 1] if chunk.start else _seed(chunk.seq)
        for slot, token_id in zip(slots, chunk.token_ids, strict=True):
            past = hash((past, token_id))
            self._slots[slot] = past

    def check(self, seq: Sequence, num_tokens: int) -> None:
        """The first `num_tokens` positions hold this sequence's own past, and nobody else's."""
        slots = self._slots_of(seq, num_tokens)
        assert self._past(seq, num_tokens)[:num_tokens] == [self._slots[slot] for slot in slots]
        if num_tokens:
            cross = _slots(seq.cross_block_ids, self._block_size)[: len(seq.encoder_ids)]
            read = [hash((seq.encoder_ids, at)) for at in range(len(seq.encoder_ids))]
            assert read == [self._slots[slot] for slot in cross]

    def _slots_of(self, seq: Sequence, num_tokens: int) -> list[int]:
        return _slots(seq.block_ids, self._block_size)[:num_tokens]

    def _past(self, seq: Sequence, num_tokens: int) -> list[int]:
        past = self._pasts.setdefault(seq, [])
        for token_id in seq.token_ids[len(past) : num_tokens]:
            past.append(hash((past[-1] if past else _seed(seq), token_id)))
        return past


def _seed(seq: Sequence) -> int:
    return hash((seq.cache_salt, seq.encoder_ids))


def _slots(block_ids: list[int], size: int) -> list[int]:
    return [slot for block in block_ids for slot in range(block * size, block * size + size)]
