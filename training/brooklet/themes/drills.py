"""Drills: the kinds of items that were still wrong after a first round, out of their themes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from training.brooklet.exchange import Exchange, Facts, Theme
from training.brooklet.themes import counting, numbers

NEAR = 12  # terms that are easily taken for each other's


def _only(theme: Theme, is_wanted: Callable[[Exchange], bool]) -> Theme:
    """Draw from a theme what is wanted of it."""

    def drill(rng: Random, facts: Facts) -> Exchange:
        while not is_wanted(exchange := theme(rng, facts)):
            pass
        return exchange

    return drill


def _does_not_say_where(count: Exchange) -> bool:
    """Whether only the two numbers tell if it is up or down."""
    return count.prompt.startswith("Count from") and " down" not in count.prompt


def _carries(neighbour: Exchange) -> bool:
    """Whether more than the last digit changes."""
    side, number = neighbour.key.split()
    return number.endswith("9" if side == "after" else "0")


def _is_near(difference: Exchange) -> bool:
    """Whether the terms, which stand in the key, are close to each other."""
    one, other = difference.key.split("-")
    return abs(int(one) - int(other)) <= NEAR


count_up = _only(counting.count_up, _does_not_say_where)
count_down = _only(counting.count_down, _does_not_say_where)
# The usual hundreds have no key.
count_to_a_ten = _only(counting.count_far, lambda count: count.key.endswith("0"))
number_neighbour = _only(counting.number_neighbour, _carries)
subtract = _only(numbers.subtract, _is_near)
below_zero = _only(numbers.below_zero, _is_near)
