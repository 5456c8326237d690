"""Numbers to words and back, from 0 to 9,999."""

from __future__ import annotations

from random import Random

from training.brooklet.text import words
from training.brooklet_t5.example import Example, ask

SMALL = words(
    """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
    fifteen sixteen seventeen eighteen nineteen
    """
)
TENS = words("_ ten twenty thirty forty fifty sixty seventy eighty ninety")
LARGEST = 9_999
TOO_LARGE = "I know numbers up to 9,999."
#: Below this no number is made of others that are taught.
FIRST_HELD_OUT = 100

TO_WORDS = (
    "number to words: {}",
    "Write {} in words",
    "Spell out the number {}",
    "{} in words",
    "What is {} in words?",
    "How do you write {} in words?",
)
TO_DIGITS = (
    "words to number: {}",
    "Write {} as a number",
    "Write {} in digits",
    "{} in digits",
    "What is {} in digits?",
    "Which number is {}?",
)


def in_words(number: int) -> str:
    """Spell out a number from 0 to 9,999, with "and" before the last two digits."""
    if number < 20:
        return SMALL[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return TENS[tens] + (f"-{SMALL[ones]}" if ones else "")
    unit, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    count, rest = divmod(number, unit)
    words = f"{in_words(count)} {name}"
    if not rest:
        return words
    return f"{words} {'and ' if rest < 100 else ''}{in_words(rest)}"


def number_to_words(rng: Random) -> Example:
    """Spell out a number, which may have a comma after its thousands."""
    number = _number(rng)
    digits = f"{number:,}" if rng.random() < 0.15 else str(number)
    source = ask(rng, TO_WORDS, digits)
    return Example("number to words", source, in_words(number), _key(number))


def words_to_number(rng: Random) -> Example:
    """Write a number in digits, from words that may lack their "and"."""
    number = _number(rng)
    words = in_words(number)
    if rng.random() < 0.15:
        words = words.replace(" and ", " ")
    if rng.random() < 0.1:
        words = words.capitalize()
    source = ask(rng, TO_DIGITS, words)
    return Example("words to number", source, str(number), _key(number))


def too_large(rng: Random) -> Example:
    """Decline a number of five to nine digits."""
    number = rng.randrange(LARGEST + 1, 10 ** rng.randint(5, 9))
    digits = f"{number:,}" if rng.random() < 0.4 else str(number)
    return Example("too large a number", ask(rng, TO_WORDS, digits), TOO_LARGE, _key(number))


def _number(rng: Random) -> int:
    """Draw by the number of digits, for most numbers have four."""
    return rng.randrange(*rng.choice(((0, 100), (100, 1000), (1000, 10_000), (1000, 10_000))))


def _key(number: int) -> str:
    return f"number {number}" if number >= FIRST_HELD_OUT else ""
