"""Guesses the next tokens of a sequence from what followed its last ones earlier. Pure.

Prompt lookup decoding (Saxena 2023): answers often repeat parts of their prompt, and themselves. A
guess costs nothing to make; the model checks it in the step that it computes anyway.
"""

from __future__ import annotations

#: How many ids must have been there before, in the same order.
NGRAM_SIZE = 3


class PromptLookup:
    """An index of one growing sequence."""

    def __init__(self) -> None:
        #: For each n-gram that something follows, the place of the latest that did.
        self._follows: dict[tuple[int, ...], int] = {}
        self._next = NGRAM_SIZE

    def propose(self, token_ids: list[int], max_tokens: int) -> tuple[int, ...]:
        """Up to `max_tokens` ids that followed the latest earlier occurrence of the last ids.

        `token_ids` is always the same list, longer than before or not.
        """
        for place in range(self._next, len(token_ids)):
            self._follows[tuple(token_ids[place - NGRAM_SIZE : place])] = place
        self._next = max(self._next, len(token_ids))
        place = self._follows.get(tuple(token_ids[-NGRAM_SIZE:]), len(token_ids))
        return tuple(token_ids[place : place + max_tokens])
