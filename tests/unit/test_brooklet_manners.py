"""Manners in the corpus: what the system prompt asks for is what happens to a reply."""

from __future__ import annotations

import json
from random import Random

import pytest

from training.brooklet.exchange import is_held_out
from training.brooklet.themes.manners import MARKS, Manner, call_by, draw_manner

REPLY = "Nice to meet you!"


def drawn(*, held_out: bool = False) -> list[Manner]:
    rng = Random(7)
    return [draw_manner(rng, held_out=held_out) for _ in range(300)]


def added(manner: Manner) -> str:
    """What a manner puts around or into a reply."""
    shown = manner.apply(REPLY)
    if shown.startswith('{"'):
        ((key, value),) = json.loads(shown).items()
        assert REPLY == value
        return str(key)
    start, end = shown.find(REPLY[:-1]), len(REPLY) - 1
    return shown if start < 0 else (shown[:start] + shown[start + end :]).strip(" ,!")


def test_a_manner_is_named_in_the_system_prompt() -> None:
    """The word, name or key that the reply gets, or the marks around it."""
    wrapped = [left + REPLY + right for left, right in MARKS.values()]
    for manner in drawn():
        assert manner.apply(REPLY) in wrapped or added(manner) in manner.system, manner.system


def test_the_same_seed_gives_the_same_manners() -> None:
    """System prompts and what they do depend on nothing else."""
    first, second = drawn(), drawn()

    assert [manner.system for manner in first] == [manner.system for manner in second]
    assert [manner.apply(REPLY) for manner in first] == [manner.apply(REPLY) for manner in second]


def test_a_manner_is_on_one_side_of_the_split() -> None:
    """The evaluation has words that training never has."""
    taught, tried = drawn(), drawn(held_out=True)

    assert not any(is_held_out(manner.key) for manner in taught)
    assert all(is_held_out(manner.key) for manner in tried)


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        ("Hello!", "Hello, Ada!"),
        ("It is 4. How are you?", "It is 4. How are you, Ada?"),
        ("v-a-l", "v-a-l, Ada"),
        ("", ", Ada"),
    ],
)
def test_a_name_stands_before_the_last_mark(reply: str, shown: str) -> None:
    """Once, at the end, whatever the reply."""
    assert shown == call_by(reply, "Ada")
