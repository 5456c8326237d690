"""Drills: the kinds of items that were still wrong after a first round, out of their themes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from training.brooklet.exchange import Exchange, Facts, Theme
from training.brooklet.themes import counting, numbers, smalltalk
from training.brooklet.themes.about_itself import I_AM

NEAR = 6  # terms that are easily taken for each other's


def _only(theme: Theme, is_wanted: Callable[[Exchange], bool]) -> Theme:
    """Draw from a theme what is wanted of it."""

    def drill(rng: Random, facts: Facts) -> Exchange:
        while not is_wanted(exchange := theme(rng, facts)):
            pass
        return exchange

    return drill


def _carries(neighbour: Exchange) -> bool:
    """Whether more than the last digit changes."""
    side, number = neighbour.key.split()
    return number.endswith("9" if side == "after" else "0")


def _is_round(total: Exchange) -> bool:
    """Whether a sum ends in zero."""
    return total.reply.endswith("0.")


def _is_near(difference: Exchange) -> bool:
    """Whether the terms, which stand in the key, are close to each other."""
    one, other = difference.key.split("-")
    return abs(int(one) - int(other)) <= NEAR


def _ends_at_a_border(count: Exchange) -> bool:
    """Whether a count ends at a ten, or shortly after a hundred."""
    return count.key.endswith("0") or count.key[-2:-1] == "0"


def _has_a_rest(count: Exchange) -> bool:
    """Whether a count says how far it is, and that its last line is shorter."""
    return "the rest" in count.reply


def _ends_oddly(talk: Exchange) -> bool:
    """Whether a line of small talk has a punctuation that few write."""
    return bool(talk.key)


def _asks_how_it_is(talk: Exchange) -> bool:
    return talk.task == "how are you"


def _says_its_name(talk: Exchange) -> bool:
    """Whether the reply is the name that the model goes by, or has it."""
    return talk.task in ("identity", "own name") or talk.reply.endswith(I_AM.partition("{me}")[2])


# The usual hundreds have no key.
count_far = _only(counting.count_far, _ends_at_a_border)
count_up = _only(counting.count_up, _has_a_rest)
number_neighbour = _only(counting.number_neighbour, _carries)
add = _only(numbers.add, _is_round)
subtract = _only(numbers.subtract, _is_near)
below_zero = _only(numbers.below_zero, _is_near)
ask_name = _only(smalltalk.smalltalk, _says_its_name)
how_are_you = _only(smalltalk.smalltalk, _asks_how_it_is)
odd_ending = _only(smalltalk.smalltalk, _ends_oddly)
