"""Numbers: counting up and down, neighbours, and small sums."""

from __future__ import annotations

from random import Random

from training.brooklet.exchange import Exchange, Facts
from training.brooklet.text import listed

LARGEST_COUNT = 100
LARGEST_TERM = 20
USUAL_ENDS = (5, 10, 10, 20, 20, 50, 100)

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
)
FROM_ONE = (
    "Count to {b}",
    "Count up to {b}",
    "Can you count to {b}",
    "Please count to {b}",
    "Count until {b}",
    "Could you count to {b}",
)
DOWN = (
    "Count down from {a} to {b}",
    "Count backwards from {a} to {b}",
    "Count from {a} down to {b}",
    "Can you count down from {a} to {b}",
    "Count from {a} to {b}",
)
TO_ONE = ("Count down from {a}", "Count backwards from {a}", "Please count down from {a}")

ADD = (
    "What is {a} + {b}",
    "What is {a} plus {b}",
    "{a} + {b}",
    "{a}+{b}",
    "Add {a} and {b}",
    "How much is {a} + {b}",
    "What's {a} plus {b}",
    "{a} plus {b}",
    "{a} + {b} =",
    "Calculate {a} + {b}",
    "What is the sum of {a} and {b}",
    "What is {a}+{b}",
)
SUBTRACT = (
    "What is {a} - {b}",
    "What is {a} minus {b}",
    "{a} - {b}",
    "{a}-{b}",
    "{a} minus {b}",
    "How much is {a} - {b}",
    "What's {a} minus {b}",
    "Subtract {b} from {a}",
    "{a} - {b} =",
    "Calculate {a} - {b}",
    "What is {a}-{b}",
)
TOO_BIG = f"That is too hard for me. I can only add and subtract numbers up to {LARGEST_TERM}."


def _span(rng: Random) -> tuple[int, int]:
    """Choose a range to count; short ones are more common, so that most turns stay short."""
    longest = rng.choice((8, 8, 8, 8, 20, 20, 20, 100))
    length = rng.randint(2, longest)
    start = rng.randint(1, LARGEST_COUNT + 1 - length)
    return start, start + length - 1


def count(rng: Random, facts: Facts) -> Exchange:
    """Count up or down between two numbers."""
    low, high = _span(rng)
    form = rng.choice((UP, UP, FROM_ONE, DOWN, TO_ONE))
    if form in (FROM_ONE, TO_ONE) or rng.random() < 0.25:
        low, high = 1, rng.choice((high, rng.randint(2, 30), *USUAL_ENDS))
    numbers = [str(number) for number in range(low, high + 1)]
    down = form in (DOWN, TO_ONE)
    if down:
        numbers.reverse()
    prompt = rng.choice(form).format(a=numbers[0], b=numbers[-1]) + rng.choice(("", ".", "!"))
    # The counts that every newcomer tries are never held out.
    usual = low == 1 and high in USUAL_ENDS
    key = "" if usual else f"count {numbers[0]} {numbers[-1]}"
    return Exchange("count down" if down else "count up", prompt, listed(numbers), key)


def number_neighbour(rng: Random, facts: Facts) -> Exchange:
    """Ask for the number before or after another."""
    number = rng.randint(2, 99)
    side = rng.choice(("before", "after"))
    form = rng.choice(
        ("What number comes {s} {n}?", "Which number is {s} {n}?", "What is {s} {n}?")
    )
    neighbour = number + (1 if side == "after" else -1)
    reply = f"The number {side} {number} is {neighbour}."
    return Exchange("number neighbour", form.format(s=side, n=number), reply, f"{side} {number}")


def small_sum(rng: Random, facts: Facts) -> Exchange:
    """Add or subtract two small numbers."""
    a, b = rng.randint(0, LARGEST_TERM), rng.randint(0, LARGEST_TERM)
    mark = rng.choice(("", "?"))
    if rng.random() < 0.5:
        prompt = rng.choice(ADD).format(a=a, b=b)
        # One key for both orders: seeing b + a would give a + b away.
        return Exchange("add", prompt + mark, f"{a} + {b} = {a + b}.", f"{min(a, b)}+{max(a, b)}")
    a, b = max(a, b), min(a, b)
    prompt = rng.choice(SUBTRACT).format(a=a, b=b)
    return Exchange("subtract", prompt + mark, f"{a} - {b} = {a - b}.", f"{a}-{b}")


def big_sum(rng: Random, facts: Facts) -> Exchange:
    """Ask for a sum beyond what was taught, which the model should decline."""
    a, b = rng.randint(21, 999), rng.randint(21, 999)
    form = rng.choice((*ADD, *SUBTRACT, "What is {a} times {b}", "{a} * {b}", "{a} / {b}"))
    prompt = form.format(a=a, b=b) + rng.choice(("", "?"))
    return Exchange("big sum", prompt, TOO_BIG, f"big {a} {b}")
