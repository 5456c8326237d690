"""Numbers: sums worked out in two steps, the times table, comparing, even and odd.

What needs to know which of two numbers is larger says so digit by digit: a model of this size
cannot tell it in one go where they are close to each other.
"""

from __future__ import annotations

from random import Random

from training.brooklet.exchange import Exchange, Facts
from training.brooklet.text import words

LARGEST_TERM = 99
LARGEST_FACTOR = 10
LARGEST_COMPARED = 999

NUMBER_WORDS = words("zero one two three four five six seven eight nine ten")
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
    "How much is {a} plus {b}",
    "What do {a} and {b} make",
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
    "How much is {a} minus {b}",
    "Take {b} away from {a}",
)
PLUS_WORDS = (
    "What is {a} plus {b}",
    "How much is {a} plus {b}",
    "What's {a} plus {b}",
    "{a} plus {b}",
    "Add {a} and {b}",
    "What is the sum of {a} and {b}",
    "What is {a} and {b} together",
    "Calculate {a} plus {b}",
    "Can you add {a} and {b}",
    "What does {a} plus {b} make",
)
MINUS_WORDS = (
    "What is {a} minus {b}",
    "How much is {a} minus {b}",
    "What's {a} minus {b}",
    "{a} minus {b}",
    "Subtract {b} from {a}",
    "Take {b} away from {a}",
    "Take {b} from {a}",
    "Calculate {a} minus {b}",
    "Can you subtract {b} from {a}",
    "What does {a} minus {b} make",
)
MULTIPLY = (
    "What is {a} times {b}",
    "{a} * {b}",
    "{a} x {b}",
    "Multiply {a} by {b}",
    "What is {a} x {b}",
    "What is {a} * {b}",
    "How much is {a} times {b}",
    "{a} times {b}",
    "What's {a} times {b}",
    "Calculate {a} x {b}",
    "{a} x {b} =",
    "What is {a} multiplied by {b}",
)
DIVIDE = ("{a} / {b}", "What is {a} divided by {b}", "Divide {a} by {b}", "What is {a} / {b}")
LARGER = (
    "Which is larger, {a} or {b}",
    "Which is bigger, {a} or {b}",
    "What is larger, {a} or {b}",
    "What is bigger, {a} or {b}",
    "Which number is larger, {a} or {b}",
    "Which number is bigger: {a} or {b}",
    "Which is greater, {a} or {b}",
    "Which is more, {a} or {b}",
    "Is {a} or {b} larger",
    "Tell me which is larger, {a} or {b}",
    "Compare {a} and {b}",
)
SMALLER = (
    "Which is smaller, {a} or {b}",
    "What is smaller, {a} or {b}",
    "Which number is smaller, {a} or {b}",
    "Which is less, {a} or {b}",
    "Is {a} or {b} smaller",
    "Tell me which is smaller, {a} or {b}",
    "Which number is smaller: {a} or {b}",
    "What is less, {a} or {b}",
    "Which one is smaller, {a} or {b}",
    "Which number is less, {a} or {b}",
)
EVEN_OR_ODD = (
    "Is {n} even or odd",
    "Is {n} an even number",
    "Is {n} an odd number",
    "Is {n} even",
    "Is {n} odd",
    "Is the number {n} even or odd",
    "Tell me if {n} is even or odd",
    "Is {n} odd or even",
    "Do you know if {n} is even",
    "Even or odd: {n}",
)
TOO_HARD = (
    f"That is too hard for me. I can add and subtract numbers up to {LARGEST_TERM} "
    f"and multiply numbers up to {LARGEST_FACTOR}."
)
BELOW_ZERO = "{a} - {b} is less than zero, and I only know the numbers from zero up."


def compared(a: int, b: int) -> str:
    """Tell which of two numbers is larger by their lengths, or by their first unlike digits.

    Both digits stand before the sign between them, which would otherwise be guessed.
    """
    sign = "<" if a < b else ">" if a > b else "="
    one, other = str(a), str(b)
    if len(one) != len(other):
        lengths = f"{a} has {len(one)} digit{'s' * (len(one) > 1)}, {b} has {len(other)}"
        return f"{lengths}: {len(one)} {sign} {len(other)}, so {a} {sign} {b}."
    pairs = list(zip(one, other, strict=True))
    if len(pairs) == 1 or a == b:
        return f"{a} {sign} {b}."
    unlike = next(place for place, (digit, beside) in enumerate(pairs) if digit != beside)
    walked = ", ".join(f"{digit} and {beside}" for digit, beside in pairs[: unlike + 1])
    return f"{walked}: {one[unlike]} {sign} {other[unlike]}, so {a} {sign} {b}."


def _terms(rng: Random) -> tuple[int, int]:
    """Draw two terms; small ones, which people try first, are more common."""
    largest = rng.choice((10, 20, LARGEST_TERM, LARGEST_TERM, LARGEST_TERM))
    return rng.randint(0, largest), rng.randint(0, largest)


def _steps(a: int, sign: str, b: int) -> list[str]:
    """Part a sum the way it is done in the head: the tens of the second term, then its ones."""
    tens, ones = b - b % 10, b % 10
    partial = a + tens if sign == "+" else a - tens
    if tens and ones:
        return [f"{a} {sign} {b}", f"{partial} {sign} {ones}"]
    return [f"{a} {sign} {b}"]


def _sum(task: str, prompt: str, a: int, sign: str, b: int) -> Exchange:
    """Answer a sum with its steps; its thought names each, a difference's compares its terms."""
    total = a + b if sign == "+" else a - b
    steps = _steps(a, sign, b)
    thought = f"{steps[-1]} = {total}."
    if len(steps) > 1:
        partial = steps[-1].split(" ")[0]
        thought = f"{steps[0]}: {a} {sign} {b - b % 10} = {partial}, {thought}"
    if sign == "-":
        thought = f"{compared(a, b)} {thought}"
    # One key for both orders of a sum: seeing b + a would give a + b away.
    key = f"{min(a, b)}+{max(a, b)}" if sign == "+" else f"{a}-{b}"
    reply = " = ".join([*steps, f"{total}."])
    return Exchange(task, prompt, reply, key, f"= {total}.", thought=thought)


def add(rng: Random, facts: Facts) -> Exchange:
    """Add two numbers."""
    a, b = _terms(rng)
    prompt = rng.choice(ADD).format(a=a, b=b) + rng.choice(("", "?"))
    return _sum("add", prompt, a, "+", b)


def subtract(rng: Random, facts: Facts) -> Exchange:
    """Subtract a number from one that is not smaller."""
    a, b = sorted(_terms(rng), reverse=True)
    if rng.random() < 0.04:
        b = a
    prompt = rng.choice(SUBTRACT).format(a=a, b=b) + rng.choice(("", "?"))
    return _sum("subtract", prompt, a, "-", b)


def sum_in_words(rng: Random, facts: Facts) -> Exchange:
    """Add or subtract two numbers that are written as words."""
    low, high = sorted(rng.randrange(len(NUMBER_WORDS)) for _ in range(2))
    plus = rng.random() < 0.5
    a, b = rng.sample((low, high), 2) if plus else (high, low)
    form = rng.choice(PLUS_WORDS if plus else MINUS_WORDS)
    prompt = form.format(a=NUMBER_WORDS[a], b=NUMBER_WORDS[b]) + rng.choice(("", "?"))
    return _sum("sum in words", prompt, a, "+" if plus else "-", b)


def below_zero(rng: Random, facts: Facts) -> Exchange:
    """Subtract a number from a smaller one, which the model should decline."""
    a, b = sorted(_terms(rng))
    a = min(a, LARGEST_TERM - 1)
    if rng.random() < 0.3:  # close to each other, which is easily overlooked
        b = min(a + rng.randint(1, 9), LARGEST_TERM)
    b += a == b
    prompt = rng.choice(SUBTRACT).format(a=a, b=b) + rng.choice(("", "?"))
    reply = BELOW_ZERO.format(a=a, b=b)
    return Exchange("below zero", prompt, reply, f"{a}-{b}", thought=compared(a, b))


def multiply(rng: Random, facts: Facts) -> Exchange:
    """Ask the times table; its products are always taught, some ways to ask held out."""
    a, b = rng.randint(0, LARGEST_FACTOR), rng.randint(0, LARGEST_FACTOR)
    prompt = rng.choice(MULTIPLY).format(a=a, b=b) + rng.choice(("", "?"))
    return Exchange("multiply", prompt, f"{a} x {b} = {a * b}.", prompt)


def too_hard(rng: Random, facts: Facts) -> Exchange:
    """Ask for a sum beyond what was taught, which the model should decline."""
    forms: tuple[str, ...]
    kind = rng.random()
    if kind < 0.3:
        a, b = rng.randint(LARGEST_FACTOR + 1, 99), rng.randint(2, 99)
        forms = MULTIPLY
    elif kind < 0.5:
        a, b = rng.randint(2, 99), rng.randint(2, 99)
        forms = DIVIDE
    else:
        a, b = rng.randint(LARGEST_TERM + 1, 2000), rng.randint(1, rng.choice((99, 2000)))
        forms = rng.choice((ADD, SUBTRACT, MULTIPLY, DIVIDE))
    if rng.random() < 0.3 and forms is not SUBTRACT:
        a, b = b, a
    prompt = rng.choice(forms).format(a=a, b=b) + rng.choice(("", "?"))
    return Exchange("too hard", prompt, TOO_HARD, f"too hard {a} {b}")


def compare(rng: Random, facts: Facts) -> Exchange:
    """Ask which of two numbers is larger or smaller."""
    largest = rng.choice((20, 99, 99, LARGEST_COMPARED))
    a, b = rng.sample(range(largest + 1), 2)
    if rng.random() < 0.3:  # close to each other, so that several digits are alike
        b = max(a - rng.randint(1, 12), 0) if a else rng.randint(1, 12)
        a, b = rng.sample((a, b), 2)
    larger = rng.random() < 0.6
    prompt = rng.choice(LARGER if larger else SMALLER).format(a=a, b=b) + rng.choice(("", "?"))
    high, low = max(a, b), min(a, b)
    found = f"{high} is larger than {low}." if larger else f"{low} is smaller than {high}."
    reply = f"{compared(a, b)} {found}"
    return Exchange("compare", prompt, reply, f"compare {low} {high}", found)


def even_or_odd(rng: Random, facts: Facts) -> Exchange:
    """Ask whether a number is even or odd; its last digit tells."""
    number = rng.randint(0, rng.choice((20, 99, 999)))
    parity = "odd" if number % 2 else "even"
    prompt = rng.choice(EVEN_OR_ODD).format(n=number) + rng.choice(("", "?"))
    thought = f"The last digit of {number} is {number % 10}."
    return Exchange(
        "even or odd", prompt, f"{number} is {parity}.", f"even {number}", thought=thought
    )
