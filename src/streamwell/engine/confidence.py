"""How many tokens of a sequence are worth guessing, by how its last guesses went. Pure.

A guess counts only if all guesses before it are right: with a share `r` of right ones, the k-th is
of use with a chance of `r ** k`. Guesses are made as long as that chance is worth their cost. Where
they were wrong too often there are none for a while; then one is tried again.
"""

from __future__ import annotations

#: What a guess must have as a chance to be made, where nobody knows what it costs.
LEAST_CHANCE = 0.3
#: The share of right guesses that is expected of a sequence of which nothing is known.
FIRST_RATE = 0.8
#: How much one guess weighs in what is remembered, and how fast wrong ones are forgiven: where the
#: last one made the chance too small, another is tried after some 15 steps without any.
_WEIGHT, _FORGIVEN = 0.15, 0.003


class Confidence:
    """Remembers the share of right guesses."""

    def __init__(self) -> None:
        self._rate = FIRST_RATE

    def num_drafts(self, most: int, least_chance: float = LEAST_CHANCE) -> int:
        """How many guesses are worth making, up to `most`: each has at least this chance."""
        count, chance = 0, self._rate
        while count < most and chance >= least_chance:
            count, chance = count + 1, chance * self._rate
        return count

    def observe(self, num_drafts: int, num_right: int) -> None:
        """Take in a step: so many guesses, and the first of them so many right.

        What comes after the first wrong one says nothing.
        """
        if not num_drafts and self._rate < FIRST_RATE:
            self._rate = min(FIRST_RATE, self._rate + _FORGIVEN)
        self._rate = 1 - (1 - self._rate) * (1 - _WEIGHT) ** num_right
        if num_right < num_drafts:
            self._rate *= 1 - _WEIGHT
