"""Counting: up and down, far, in steps, and the neighbours of numbers.

What goes wrong is mostly a start or an end copied badly, a turn at a hundred, and an end far away,
so ranges are drawn to cross tens and hundreds and to end anywhere. Who counts far says how far at
every ten, and that the last line begins where only the ones are missing: hundreds, tens and ones
are then compared one after the other, and with an end that stands beside them. Where only the
numbers tell whether it is up or down, the reply says first which is larger.
"""

from __future__ import annotations

import re
from random import Random

from training.brooklet.exchange import Exchange, Facts
from training.brooklet.text import listed
from training.brooklet.themes.numbers import compared

LARGEST_NUMBER = 999  # of short counts and of neighbours
LONGEST_COUNT = 200  # of usual counts from one
FARTHEST_COUNT = 500
LONGEST_UNMARKED = 50  # of counts from one that do not say how far they are
USUAL_ENDS = (5, 10, 10, 20, 20, 50, 100, 200)

UP = (
    "Count from {a} to {b}",
    "Count up from {a} to {b}",
    "Can you count from {a} to {b}",
    "Please count from {a} to {b}",
    "List the numbers from {a} to {b}",
    "Count {a} to {b}",
    "Numbers from {a} to {b}",
    "I want you to count from {a} to {b}",
    "Write {a} to {b}",
    "Write the numbers from {a} to {b}",
    "Say the numbers from {a} to {b}",
    "Count all numbers from {a} to {b}",
)
FROM_ONE = (
    "Count to {b}",
    "Count up to {b}",
    "Can you count to {b}",
    "Please count to {b}",
    "Count until {b}",
    "Could you count to {b}",
    "Count for me to {b}",
    "Start counting to {b}",
    "I want you to count to {b}",
    "Count all the way to {b}",
)
DOWN = (
    "Count down from {a} to {b}",
    "Count backwards from {a} to {b}",
    "Count from {a} down to {b}",
    "Can you count down from {a} to {b}",
    "Count from {a} to {b}",
    "Count back from {a} to {b}",
    "List the numbers from {a} down to {b}",
    "Please count down from {a} to {b}",
)
#: Where the numbers alone tell which way.
EITHER_WAY = tuple(form for form in (*UP, *DOWN) if not re.search("up|down|back", form))
TO_ONE = (
    "Count down from {a}",
    "Count backwards from {a}",
    "Please count down from {a}",
    "Can you count down from {a}",
    "Count back from {a}",
    "Start a countdown from {a}",
)
BY_STEPS = (
    "Count by {s} from {a} to {b}",
    "Count from {a} to {b} by {s}",
    "Count in {s} from {a} to {b}",
    "Count from {a} to {b} in {s}",
    "Can you count by {s} from {a} to {b}",
    "Please count by {s} from {a} to {b}",
    "Count by {s} starting at {a} up to {b}",
    "Skip count by {s} from {a} to {b}",
    "List the numbers from {a} to {b} in steps of {d}",
    "Count from {a} to {b} in steps of {d}",
)
BY_STEPS_TO = (
    "Count by {s} to {b}",
    "Count to {b} by {s}",
    "Count in {s} to {b}",
    "Count to {b} in {s}",
    "Can you count by {s} to {b}",
    "Count to {b} in steps of {d}",
    "Please count to {b} by {s}",
    "Skip count by {s} to {b}",
    "Count up to {b} by {s}",
    "Count by {s} up to {b}",
)
STEPS = {2: "twos", 5: "fives", 10: "tens"}
NEIGHBOUR = (
    "What number comes {s} {n}?",
    "Which number is {s} {n}?",
    "What is {s} {n}?",
    "What comes {s} {n}?",
    "Tell me the number {s} {n}.",
    "What is the number {s} {n}?",
    "Which number comes {s} {n}?",
    "The number {s} {n} is?",
    "What number is {s} {n}?",
    "Give me the number {s} {n}",
)
TOO_FAR = f"That is too far for me. I can count to {FARTHEST_COUNT}."


def _span(rng: Random) -> tuple[int, int]:
    """Choose a range to count; short ones are more common, so that most turns stay short."""
    length = rng.randint(2, rng.choice((6, 8, 8, 12, 12, 20, 20, 50)))
    if rng.random() < 0.3:  # across a hundred, or across a ten
        border = rng.choice((rng.randint(1, 9) * 100, rng.randint(1, 99) * 10))
        start = max(1, border - rng.randint(0, length - 1))
    else:
        largest = rng.choice((30, 100, 100, 200, LARGEST_NUMBER))
        start = rng.randint(1, max(1, largest + 1 - length))
    return start, min(start + length - 1, LARGEST_NUMBER)


def _span_from_one(rng: Random) -> tuple[int, int]:
    """Choose how far to count from one: mostly a short way or to a usual end."""
    ends = (rng.randint(2, 30), rng.randint(2, 30), rng.randint(2, rng.randint(2, LONGEST_COUNT)))
    return 1, rng.choice((*ends, *ends, *USUAL_ENDS, *USUAL_ENDS[:-2]))


def _count(rng: Random, task: str, between: tuple[str, ...], one: tuple[str, ...]) -> Exchange:
    """Count in either direction, between two numbers or from or to one."""
    form = rng.choice(rng.choice((between, between, one)))
    from_one = form in one or rng.random() < 0.1
    low, high = _span_from_one(rng) if from_one else _span(rng)
    numbers = [str(number) for number in range(low, high + 1)]
    is_down = task == "count down"
    if is_down:
        numbers.reverse()
    is_marked = low == 1 and high > LONGEST_UNMARKED and not is_down
    reply = _marked(high) if is_marked else listed(numbers)
    if form in EITHER_WAY:
        reply = f"{_way(int(numbers[0]), int(numbers[-1]))}{reply}"
    prompt = form.format(a=numbers[0], b=numbers[-1]) + rng.choice(("", ".", "!", "?"))
    # The counts that every newcomer tries are never held out.
    usual = low == 1 and high in USUAL_ENDS
    key = "" if usual else f"count {numbers[0]} {numbers[-1]}"
    return Exchange(task, prompt, reply, key)


def _way(start: int, end: int) -> str:
    """Tell which way a count goes, and why, where that does not meet the eye."""
    if 1 in (start, end) or max(start, end) < 10:
        return ""
    return f"{compared(start, end)} {'Up' if start < end else 'Down'}: "


def _marked(end: int) -> str:
    """Count from one, in lines of ten that say how far the count is."""
    lines = []
    for first in range(1, end + 1, 10):
        last = first + 9
        line = ", ".join(str(number) for number in range(first, min(last, end) + 1))
        rest = ", the rest" if last < end < last + 10 else ""
        lines.append(f"{line} ({last} of {end}{rest})" if last <= end else line)
    return "\n".join(lines) + "."


def count_up(rng: Random, facts: Facts) -> Exchange:
    """Count up between two numbers."""
    return _count(rng, "count up", UP, FROM_ONE)


def count_down(rng: Random, facts: Facts) -> Exchange:
    """Count down between two numbers."""
    return _count(rng, "count down", DOWN, TO_ONE)


def count_either_way(rng: Random, facts: Facts) -> Exchange:
    """Count between two numbers which alone tell whether it is up or down."""
    is_up = rng.random() < 0.6
    start, end = _span(rng) if is_up else reversed(_span(rng))
    numbers = range(start, end + 1) if is_up else range(start, end - 1, -1)
    form = rng.choice((EITHER_WAY[0], rng.choice(EITHER_WAY)))
    prompt = form.format(a=start, b=end) + rng.choice(("", ".", "!", "?"))
    reply = _way(start, end) + listed([str(number) for number in numbers])
    return Exchange("count either way", prompt, reply, f"count {start} {end}")


def count_far(rng: Random, facts: Facts) -> Exchange:
    """Count from one to hundreds, in up to two and a half thousand tokens."""
    hundreds = (300, 400, FARTHEST_COUNT, FARTHEST_COUNT)
    end = rng.choice((rng.randint(LONGEST_COUNT + 1, FARTHEST_COUNT), rng.choice(hundreds)))
    form = rng.choice((*FROM_ONE, *FROM_ONE, *UP))
    prompt = form.format(a=1, b=end) + rng.choice(("", ".", "!", "?"))
    return Exchange("count far", prompt, _marked(end), "" if end in hundreds else f"count 1 {end}")


def too_far(rng: Random, facts: Facts) -> Exchange:
    """Ask for a count that would not fit, which the model should decline."""
    digits = rng.choice((3, 4, 4, 5, 6, 7))
    end = rng.randint(max(FARTHEST_COUNT + 1, 10 ** (digits - 1)), 10**digits - 1)
    end = rng.choice((end, rng.randint(1, 9) * 10**digits, 10**digits, 600, 1000, 10_000))
    prompt = rng.choice(FROM_ONE).format(b=end) + rng.choice(("", ".", "!", "?"))
    return Exchange("too far", prompt, TOO_FAR, f"too far {end}")


def count_by(rng: Random, facts: Facts) -> Exchange:
    """Count in twos, fives or tens."""
    step, plural = rng.choice(list(STEPS.items()))
    length = rng.randint(2, rng.choice((5, 10, 20)))
    begins = rng.random() < 0.5
    start = step * rng.randint(1, 200 // step) if begins else step
    if begins and rng.random() < 0.4:
        start += rng.randint(0, step - 1)
    numbers = [str(start + step * index) for index in range(length)]
    form = rng.choice(BY_STEPS if begins else BY_STEPS_TO)
    prompt = form.format(s=rng.choice((plural, f"{step}s")), d=step, a=numbers[0], b=numbers[-1])
    prompt += rng.choice(("", ".", "?"))
    key = f"by {step} {numbers[0]} {numbers[-1]}"
    return Exchange("count by", prompt, listed(numbers), key)


def number_neighbour(rng: Random, facts: Facts) -> Exchange:
    """Ask for the number before or after another."""
    number = rng.randint(1, rng.choice((100, 200, LARGEST_NUMBER)))
    if rng.random() < 0.25:  # where more than one digit changes
        number = max(1, rng.choice((rng.randint(1, 9) * 100, rng.randint(1, 99) * 10)))
        number -= rng.randint(0, 1)
    side = rng.choice(("before", "after"))
    form = rng.choice(NEIGHBOUR)
    neighbour = number + (1 if side == "after" else -1)
    reply = f"The number {side} {number} is {neighbour}."
    return Exchange("number neighbour", form.format(s=side, n=number), reply, f"{side} {number}")
