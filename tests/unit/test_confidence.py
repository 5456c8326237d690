"""How far guesses go: with the share of right ones, and with what they cost."""

from __future__ import annotations

import math
from functools import cache
from random import Random

import pytest
from scheduler_bench import with_prompt

from streamwell.engine.confidence import LEAST_CHANCE, Confidence
from streamwell.engine.draft_cost import STEPS_BETWEEN, DraftCost
from streamwell.engine.sequence import Chunk, Step


def test_a_new_sequence_gets_some_guesses() -> None:
    """Nobody knows it yet; the limit counts."""
    assert [0, 1, 4, 5] == [Confidence().num_drafts(most) for most in (0, 1, 4, 16)]


def test_right_guesses_make_more_of_them() -> None:
    """Up to the limit."""
    confidence = Confidence()
    for _ in range(5):
        confidence.observe(4, 4)

    assert 16 == confidence.num_drafts(16)


def test_wrong_guesses_make_fewer_and_then_none() -> None:
    """A sequence whose guesses are all wrong soon has none."""
    confidence, counts = Confidence(), []
    while count := confidence.num_drafts(8):
        counts.append(count)
        confidence.observe(count, 0)

    assert sorted(counts, reverse=True) == counts
    assert [5, 3, 2, 1, 1, 1, 1] == counts


def test_after_a_while_one_is_tried_again() -> None:
    """Of 400 steps with wrong guesses one in sixteen has any; a right one brings the next soon."""
    confidence, num_drafts = Confidence(), []
    for _ in range(400):
        num_drafts.append(confidence.num_drafts(8))
        confidence.observe(num_drafts[-1], 0)
    assert 1 == max(num_drafts[20:])
    assert 400 / 20 < sum(num_drafts[20:]) < 400 / 12

    while not (count := confidence.num_drafts(8)):
        confidence.observe(0, 0)
    confidence.observe(count, count)

    assert 0 < confidence.num_drafts(8)


def test_guesses_after_the_first_wrong_one_say_nothing() -> None:
    """One wrong guess weighs the same however many follow it."""
    short, long = Confidence(), Confidence()
    short.observe(1, 0)
    long.observe(8, 0)

    assert short.num_drafts(16) == long.num_drafts(16)


def test_dear_guesses_must_be_likelier() -> None:
    """The k-th is made if all k are right with the chance that is asked for."""
    confidence = Confidence()

    assert [3, 1, 0] == [confidence.num_drafts(8, chance) for chance in (0.5, 0.7, 0.9)]
    assert 0 == confidence.num_drafts(8, math.inf)


@cache
def a_step(num_decodes: int, num_drafts: int = 0, num_prefill_tokens: int = 0) -> Step:
    seqs = [with_prompt(str(i), range(3)) for i in range(num_decodes)]
    chunks = [Chunk(seq, 2, 1) for seq in seqs]
    if num_drafts:
        chunks[0] = chunks[0].guessed((7,) * num_drafts)
    if num_prefill_tokens:
        chunks.append(Chunk(with_prompt("long", range(99)), 0, num_prefill_tokens))
    return Step(tuple(chunks))


def test_first_a_step_without_guesses() -> None:
    """Nothing can be said of their cost before; steps with prompts do not count."""
    cost = DraftCost()
    assert math.inf == cost.least_chance
    cost.observe(a_step(1, num_prefill_tokens=9), 1.0)
    assert math.inf == cost.least_chance
    cost.observe(a_step(1), 1.0)

    assert LEAST_CHANCE == cost.least_chance


@pytest.mark.parametrize(
    ("streams", "drafts", "seconds", "expected"),
    [(1, 4, 1.4, 0.1), (1, 4, 5.0, 1.0), (8, 32, 9.0, 2.0), (8, 32, 1.4, 0.1), (2, 4, 0.9, 0.1)],
)
def test_a_guess_costs_what_it_adds_to_a_step(
    streams: int, drafts: int, seconds: float, expected: float
) -> None:
    """Compared with a step without any, of a second here, and in tokens of that step."""
    cost = DraftCost()
    cost.observe(a_step(streams), 1.0)
    for _ in range(STEPS_BETWEEN - 1):
        cost.observe(a_step(streams, drafts), seconds)

    assert expected == pytest.approx(cost.least_chance, rel=0.1)


def test_a_single_slow_step_changes_little() -> None:
    """A machine with other things to do says nothing of guesses."""
    cost = DraftCost()
    cost.observe(a_step(1), 1.0)
    cost.observe(a_step(1, 4), 1.4)
    before = cost.least_chance
    cost.observe(a_step(1, 4), 100.0)

    assert cost.least_chance < before + 0.2


def test_numbers_of_streams_are_told_apart() -> None:
    """What is cheap beside one stream may be dear beside eight."""
    cost = DraftCost()
    for _ in range(20):
        cost.observe(a_step(8), 1.0)
        cost.observe(a_step(8, 8), 3.0)
        cost.observe(a_step(1), 1.0)
        cost.observe(a_step(1, 4), 1.4)
    assert cost.least_chance < 0.2
    cost.observe(a_step(8), 1.0)

    assert cost.least_chance > 1.0


def test_now_and_then_a_step_goes_without() -> None:
    """Contexts grow, and with them the time of a step that guesses are compared with."""
    cost = DraftCost()
    cost.observe(a_step(1), 1.0)
    for _ in range(STEPS_BETWEEN):
        assert math.inf > cost.least_chance
        cost.observe(a_step(1, 4), 1.4)

    assert math.inf == cost.least_chance
    cost.observe(a_step(1), 1.0)
    assert math.inf > cost.least_chance


@pytest.mark.parametrize("dear", [False, True], ids=["cheap", "dear"])
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.6, 0.9])
def test_guessing_pays_or_costs_little(rate: float, dear: bool) -> None:
    """4000 steps of a model whose guesses are right with this chance, and take a tenth of a token.

    Or a whole token and a half, as where a model guesses for itself.
    """
    rng, confidence, cost = Random(1), Confidence(), DraftCost()
    num_tokens, seconds = 0, 0.0
    for _ in range(4000):
        count = confidence.num_drafts(4, cost.least_chance)
        step_s = 1.0 + (1.5 if dear else 0.1) * count
        right = next((k for k in range(count) if rng.random() >= rate), count)
        confidence.observe(count, right)
        cost.observe(a_step(1, count), step_s)
        num_tokens, seconds = num_tokens + 1 + right, seconds + step_s

    speed = num_tokens / seconds
    bounds = {0.0: (0.97, 1.0), 0.3: (1.0, 1.3), 0.6: (1.5, 1.9), 0.9: (2.6, 3.0)}
    least, most = (0.97, 1.0) if dear else bounds[rate]
    assert least <= speed <= most
