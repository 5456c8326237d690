"""Numbers of the corpus: what is counted, summed up and compared is right, and says why."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from theme_draws import drawn, numbers_in

from training.brooklet.themes import counting, drills, numbers


def test_a_far_count_reaches_its_end() -> None:
    """From one to a number above the usual counts; none is left out, each ten says of how many."""
    for exchange in drawn(counting.count_far, 6):
        end = numbers_in(exchange.prompt)[-1]
        lines = [line.partition(" (") for line in exchange.reply.split("\n")]
        counted = [numbers_in(line) for line, _, _ in lines]

        assert counting.LONGEST_COUNT < end <= counting.FARTHEST_COUNT
        assert list(range(1, end + 1)) == [number for line in counted for number in line]
        assert all(
            [line[-1], end] == numbers_in(mark)
            for line, (_, _, mark) in zip(counted, lines, strict=True)
            if mark
        )
        assert [line for line, (_, _, mark) in enumerate(lines) if "the rest" in mark] == (
            [len(lines) - 2] if end % 10 else []
        )


def test_drills_are_the_items_that_are_easily_wrong() -> None:
    """Near terms, round sums, carries, counts to a ten or a hundred, or that have a rest."""
    for near in (drills.subtract, drills.below_zero):
        for exchange in drawn(near):
            first, second, *_ = numbers_in(exchange.reply)
            assert abs(first - second) <= drills.NEAR
    for exchange in drawn(drills.number_neighbour):
        number, neighbour = numbers_in(exchange.reply)
        assert number // 10 != neighbour // 10
    for exchange in drawn(drills.count_far, 6):
        end = numbers_in(exchange.prompt)[-1]
        assert end % 10 == 0 or end % 100 < 10
        assert end % 100
    for exchange in drawn(drills.count_up, 20):
        assert numbers_in(exchange.prompt)[-1] % 10
        assert "the rest)" in exchange.reply
    for exchange in drawn(drills.add):
        assert numbers_in(exchange.reply)[-1] % 10 == 0


def test_a_count_goes_from_its_first_number_to_its_second() -> None:
    """Where no word says up or down, both ways are drawn, and the numbers alone tell which."""
    directions = set()
    for exchange in drawn(counting.count_either_way):
        first, last = numbers_in(exchange.prompt)
        step = 1 if last > first else -1
        directions.add(step)

        reason, _, counted = exchange.reply.rpartition("Up: " if step > 0 else "Down: ")
        assert list(range(first, last + step, step)) == numbers_in(counted)
        plain = 1 in (first, last) or max(first, last) < 10
        assert reason == ("" if plain else f"{numbers.compared(first, last)} ")
        assert not re.search("up|down|back", exchange.prompt)
    assert {1, -1} == directions


def test_a_count_says_which_way_where_no_word_does() -> None:
    """The same prompt has the same reply, whichever theme it comes from."""
    for theme in (counting.count_up, counting.count_down):
        for exchange in drawn(theme):
            ends = numbers_in(exchange.prompt)
            is_told = bool(re.search("up|down|back", exchange.prompt)) or len(ends) < 2
            plain = is_told or 1 in ends or max(ends) < 10
            assert plain == (not re.search("Up|Down", exchange.reply))


def test_counts_in_steps_keep_their_step() -> None:
    """Each number is as far from the last as the prompt says, and the last one is named in it."""
    for exchange in drawn(counting.count_by):
        counted = numbers_in(exchange.reply)
        step = counted[1] - counted[0]
        asked = exchange.prompt

        assert {step} == {after - before for before, after in pairwise(counted)}
        assert counting.STEPS[step] in asked or f"{step}s" in asked or f"steps of {step}" in asked
        assert counted[-1] in numbers_in(asked)


def test_thoughts_lead_to_the_reply() -> None:
    """The steps of a sum end at its total."""
    for theme in (numbers.add, numbers.subtract, numbers.sum_in_words):
        for exchange in drawn(theme):
            assert numbers_in(exchange.thought)[-1] == numbers_in(exchange.reply)[-1]
            for left, sign, right, total in re.findall(
                r"(\d+) ([+-]) (\d+) = (\d+)", exchange.thought
            ):
                assert int(total) == int(left) + int(sign + right)


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (7, 4, "7 > 4."),
        (8, 8, "8 = 8."),
        (53, 53, "53 = 53."),
        (28, 65, "2 and 6: 2 < 6, so 28 < 65."),
        (164, 161, "1 and 1, 6 and 6, 4 and 1: 4 > 1, so 164 > 161."),
        (99, 101, "99 has 2 digits, 101 has 3: 2 < 3, so 99 < 101."),
        (12, 9, "12 has 2 digits, 9 has 1: 2 > 1, so 12 > 9."),
        (9, 12, "9 has 1 digit, 12 has 2: 1 < 2, so 9 < 12."),
    ],
)
def test_numbers_are_compared_digit_by_digit(a: int, b: int, said: str) -> None:
    """Up to the first digits that differ, which stand before the sign; or by their lengths."""
    assert said == numbers.compared(a, b)


def test_a_comparison_says_why() -> None:
    """What the two numbers differ by comes before the answer, and is about them."""
    for exchange in drawn(numbers.compare):
        first, second = numbers_in(exchange.answer)
        reason = exchange.reply.removesuffix(exchange.answer)

        assert first > second if "larger" in exchange.answer else first < second
        assert {first, second} <= set(numbers_in(reason))
        assert {first, second} == set(numbers_in(exchange.prompt))


def test_products_are_right_and_bounded() -> None:
    """The times table up to ten; what lies beyond it is declined by another theme."""
    for exchange in drawn(numbers.multiply):
        a, b, product = numbers_in(exchange.reply)
        assert a * b == product
        assert sorted((a, b)) == sorted(numbers_in(exchange.prompt))
    for exchange in drawn(numbers.too_hard):
        a, b = numbers_in(exchange.prompt)
        divides = "/" in exchange.prompt or "ivide" in exchange.prompt
        assert divides or max(a, b) > numbers.LARGEST_FACTOR
