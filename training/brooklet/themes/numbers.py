"""Numbers: counting up and down, neighbours, and sums worked out in two steps."""

from __future__ import annotations

from random import Random

from training.brooklet.exchange import Exchange, Facts
from training.brooklet.text import listed

LARGEST_NUMBER = 999  # of short counts and of neighbours
LONGEST_COUNT = 200
LARGEST_TERM = 99
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
BEYOND = ("What is {a} times {b}", "{a} * {b}", "{a} / {b}", "Multiply {a} by {b}", "{a} x {b}")
TOO_HARD = f"That is too hard for me. I can only add and subtract numbers up to {LARGEST_TERM}."
BELOW_ZERO = "{a} - {b} is less than zero, and I only know the numbers from zero up."


def _span(rng: Random) -> tuple[int, int]:
    """Choose a range to count; short ones are more common, so that most turns stay short."""
    length = rng.randint(2, rng.choice((8, 8, 8, 12, 12, 20, 20, 60)))
    largest = rng.choice((30, 100, 100, 200, LARGEST_NUMBER))
    start = rng.randint(1, max(1, largest + 1 - length))
    return start, start + length - 1


def _span_from_one(rng: Random) -> tuple[int, int]:
    """Choose how far to count from one: mostly a short way or to a usual end."""
    ends = (rng.randint(2, 30), rng.randint(2, 30), rng.randint(2, rng.randint(2, LONGEST_COUNT)))
    return 1, rng.choice((*ends, *USUAL_ENDS, *USUAL_ENDS[:-2]))


def _count(rng: Random, task: str, between: tuple[str, ...], one: tuple[str, ...]) -> Exchange:
    """Count in either direction, between two numbers or from or to one."""
    form = rng.choice(rng.choice((between, between, one)))
    from_one = form in one or rng.random() < 0.1
    low, high = _span_from_one(rng) if from_one else _span(rng)
    numbers = [str(number) for number in range(low, high + 1)]
    if task == "count down":
        numbers.reverse()
    prompt = form.format(a=numbers[0], b=numbers[-1]) + rng.choice(("", ".", "!", "?"))
    # The counts that every newcomer tries are never held out.
    usual = low == 1 and high in USUAL_ENDS
    key = "" if usual else f"count {numbers[0]} {numbers[-1]}"
    return Exchange(task, prompt, listed(numbers), key)


def count_up(rng: Random, facts: Facts) -> Exchange:
    """Count up between two numbers."""
    return _count(rng, "count up", UP, FROM_ONE)


def count_down(rng: Random, facts: Facts) -> Exchange:
    """Count down between two numbers."""
    return _count(rng, "count down", DOWN, TO_ONE)


def number_neighbour(rng: Random, facts: Facts) -> Exchange:
    """Ask for the number before or after another."""
    number = rng.randint(1, rng.choice((100, 200, LARGEST_NUMBER)))
    side = rng.choice(("before", "after"))
    form = rng.choice(
        (
            "What number comes {s} {n}?",
            "Which number is {s} {n}?",
            "What is {s} {n}?",
            "What comes {s} {n}?",
            "Tell me the number {s} {n}.",
            "What is the number {s} {n}?",
        )
    )
    neighbour = number + (1 if side == "after" else -1)
    reply = f"The number {side} {number} is {neighbour}."
    return Exchange("number neighbour", form.format(s=side, n=number), reply, f"{side} {number}")


def _terms(rng: Random) -> tuple[int, int]:
    """Draw two terms; small ones, which people try first, are more common."""
    largest = rng.choice((10, 20, LARGEST_TERM, LARGEST_TERM, LARGEST_TERM))
    return rng.randint(0, largest), rng.randint(0, largest)


def _worked(a: int, sign: str, b: int) -> str:
    """Write a sum the way it is done in the head: the tens of the second term, then its ones."""
    tens, ones = b - b % 10, b % 10
    partial = a + tens if sign == "+" else a - tens
    total = a + b if sign == "+" else a - b
    steps = (
        [f"{a} {sign} {b}", f"{partial} {sign} {ones}"] if tens and ones else [f"{a} {sign} {b}"]
    )
    return " = ".join([*steps, f"{total}."])


def add(rng: Random, facts: Facts) -> Exchange:
    """Add two numbers."""
    a, b = _terms(rng)
    prompt = rng.choice(ADD).format(a=a, b=b) + rng.choice(("", "?"))
    # One key for both orders: seeing b + a would give a + b away.
    return Exchange("add", prompt, _worked(a, "+", b), f"{min(a, b)}+{max(a, b)}", f"= {a + b}.")


def subtract(rng: Random, facts: Facts) -> Exchange:
    """Subtract a number from one that is not smaller."""
    a, b = sorted(_terms(rng), reverse=True)
    prompt = rng.choice(SUBTRACT).format(a=a, b=b) + rng.choice(("", "?"))
    return Exchange("subtract", prompt, _worked(a, "-", b), f"{a}-{b}", f"= {a - b}.")


def below_zero(rng: Random, facts: Facts) -> Exchange:
    """Subtract a number from a smaller one, which the model should decline."""
    a, b = sorted(_terms(rng))
    b += a == b
    prompt = rng.choice(SUBTRACT).format(a=a, b=b) + rng.choice(("", "?"))
    return Exchange("below zero", prompt, BELOW_ZERO.format(a=a, b=b), f"{a}-{b}")


def too_hard(rng: Random, facts: Facts) -> Exchange:
    """Ask for a sum beyond what was taught, which the model should decline."""
    if rng.random() < 0.4:
        a, b = rng.randint(2, 99), rng.randint(2, 99)
        form = rng.choice(BEYOND)
    else:
        a, b = rng.randint(LARGEST_TERM + 1, 2000), rng.randint(1, 2000)
        form = rng.choice((*ADD, *SUBTRACT, *BEYOND))
    if rng.random() < 0.3 and form not in SUBTRACT:
        a, b = b, a
    prompt = form.format(a=a, b=b) + rng.choice(("", "?"))
    return Exchange("too hard", prompt, TOO_HARD, f"too hard {a} {b}")
