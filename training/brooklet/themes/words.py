"""Words: spelling, letters and repeating after the user."""

from __future__ import annotations

from random import Random

from training.brooklet.exchange import Exchange, Facts
from training.brooklet.themes.lexicon import any_word, joined
from training.brooklet.themes.sayings import plain_sentence, saying
from training.brooklet.themes.vocabulary import ALPHABET

LONGEST_REVERSED = 10
ORDINALS = ("first", "second", "third", "fourth")

SPELL = (
    "Spell {w}",
    "How do you spell {w}?",
    "Spell the word {w}.",
    "Can you spell {w}?",
    "Please spell {w}.",
    "spell {w}",
    "How is {w} spelled?",
    "Spell out {w}.",
    "What are the letters of {w}?",
    "Spell {w} for me",
    "Spell: {w}",
    'Spell "{w}"',
    "Spell '{w}'.",
)
BACKWARDS = (
    "Spell {w} backwards",
    "Spell {w} backwards.",
    "What is {w} backwards?",
    "Spell the word {w} backwards.",
    "Reverse {w}",
    "Reverse the word {w}.",
    "Can you spell {w} backwards?",
    "Write {w} backwards.",
    "How do you spell {w} backwards?",
    'Spell "{w}" in reverse.',
    "Please reverse {w}",
    "Turn {w} around.",
)
COUNT_LETTERS = (
    "How many letters are in {w}?",
    "How many letters does {w} have?",
    "How many letters are in the word {w}?",
    "How long is the word {w}?",
    "Count the letters of {w}.",
    "How many letters are there in {w}?",
    "How many letters has {w}?",
    "Count the letters in {w}",
    'How many letters does "{w}" have?',
    "Tell me how many letters {w} has.",
)
OCCURRENCES = (
    "How many {c} are in {w}?",
    "How many {c}'s are in {w}?",
    "How many {c}s are in {w}?",
    "How many {c}'s are there in {w}?",
    "How often does {w} have the letter {c}?",
    "How many times does the letter {c} occur in {w}?",
    "Count the letter {c} in {w}.",
    "How many letters {c} does {w} have?",
    "How often is {c} in {w}?",
    "How many {c}'s in {w}?",
    "How many times is {c} in {w}?",
)
ONE_LETTER = (
    "What is the {k} letter of {w}?",
    "What's the {k} letter in {w}?",
    "Tell me the {k} letter of {w}.",
    "Which letter is {k} in {w}?",
    "What is the {k} letter in the word {w}?",
    "What is the {k} letter in {w}?",
    "Give me the {k} letter of {w}",
    "Which letter comes {k} in {w}?",
    "Say the {k} letter of {w}.",
    "The {k} letter of {w} is?",
)
ALPHABET_NEIGHBOUR = (
    "What letter comes {s} {x}?",
    "Which letter is {s} {x}?",
    "What is the letter {s} {x}?",
    "Which letter comes {s} {x}?",
    "Tell me the letter {s} {x}.",
    "What letter is {s} {x} in the alphabet?",
    "What comes {s} {x} in the alphabet?",
    "Which letter comes {s} {x} in the alphabet?",
    "The letter {s} {x} is?",
    "What is the letter {s} {x} in the alphabet?",
)
ECHO = (
    "Repeat after me: {x}",
    "Say {x}",
    "Repeat: {x}",
    "Please repeat: {x}",
    "Echo {x}",
    'Say "{x}"',
    "Repeat this: {x}",
    "Say the words {x}",
    "Please say {x}",
    "Repeat the words: {x}",
    "Say this: {x}",
    "Repeat exactly: {x}",
    "Please echo: {x}",
    'Repeat "{x}"',
)


def _spelled(word: str) -> str:
    """Part the letters with hyphens, which makes each a token of its own."""
    return "-".join(word)


def _numbered(letters: str) -> str:
    """Number the letters: two that are alike differ by their number."""
    return ", ".join(f"{letter} {number}" for number, letter in enumerate(letters, start=1))


def _spelling_key(word: str) -> str:
    """One key for every question about a word's letters, each of which gives the others away."""
    return f"letters {word.lower()}"


def _any_case(rng: Random, letter: str) -> str:
    """Write a letter the way people do when they ask for it."""
    return rng.choice((letter, letter.upper()))


def spell(rng: Random, facts: Facts) -> Exchange:
    """Spell a word."""
    return _spelling(rng, any_word(rng))


def spell_joined(rng: Random, facts: Facts) -> Exchange:
    """Spell two words in one, so that every token of a word is spelled somewhere."""
    return _spelling(rng, joined(rng))


def _spelling(rng: Random, word: str) -> Exchange:
    prompt = rng.choice(SPELL).format(w=word)
    return Exchange("spell", prompt, _spelled(word), _spelling_key(word))


def spell_backwards(rng: Random, facts: Facts) -> Exchange:
    """Spell a word, then the same letters from the end."""
    word = any_word(rng)
    while len(word) > LONGEST_REVERSED:
        word = any_word(rng)
    prompt = rng.choice(BACKWARDS).format(w=word)
    reply = f"{_spelled(word)} backwards is {_spelled(word[::-1])}."
    return Exchange("spell backwards", prompt, reply, _spelling_key(word))


def letter_of(rng: Random, facts: Facts) -> Exchange:
    """Ask for one letter of a word, by its place."""
    word = any_word(rng)
    place = rng.choice(("last", *ORDINALS[: len(word)]))
    walked = word if place == "last" else word[: ORDINALS.index(place) + 1]
    reply = f"{_spelled(word)}: {_numbered(walked)}. The {place} letter is {walked[-1]}."
    prompt = rng.choice(ONE_LETTER).format(k=place, w=word)
    return Exchange("letters of", prompt, reply, _spelling_key(word))


def count_letters(rng: Random, facts: Facts) -> Exchange:
    """Ask how long a word is; the reply numbers the letters."""
    word = any_word(rng)
    prompt = rng.choice(COUNT_LETTERS).format(w=word)
    reply = f"{_spelled(word)}: {_numbered(word)}. That makes {len(word)}."
    return Exchange("count letters", prompt, reply, _spelling_key(word))


def occurrences(rng: Random, facts: Facts) -> Exchange:
    """Ask how often a letter occurs in a word; the reply counts it where it stands."""
    word = any_word(rng)
    present = [letter for letter in word.lower() if letter.isalpha()]
    repeated = [letter for letter in present if present.count(letter) > 1]
    letter = rng.choice(rng.choice((present, repeated or present, ALPHABET)))
    walked, count = [], 0
    for number, sign in enumerate(word, start=1):
        found = sign.lower() == letter
        count += found
        walked.append(f"{sign} {number}: {count}" if found else f"{sign} {number}")
    prompt = rng.choice(OCCURRENCES).format(c=_any_case(rng, letter), w=word)
    reply = f"{_spelled(word)}: {', '.join(walked)}. That makes {count}."
    return Exchange("occurrences", prompt, reply, _spelling_key(word))


def letter_neighbour(rng: Random, facts: Facts) -> Exchange:
    """Ask for the letter before or after another."""
    index = rng.randint(1, 24)
    side = rng.choice(("before", "after"))
    letter = ALPHABET[index]
    found = ALPHABET[index + (1 if side == "after" else -1)]
    prompt = rng.choice(ALPHABET_NEIGHBOUR).format(s=side, x=_any_case(rng, letter))
    return Exchange("alphabet", prompt, f"The letter {side} {letter} is {found}.", prompt)


def echo(rng: Random, facts: Facts) -> Exchange:
    """Repeat words back. Copying is the skill that recalling a name rests on."""
    return _echo(rng, saying(rng))


def echo_sentence(rng: Random, facts: Facts) -> Exchange:
    """Repeat an ordinary sentence."""
    return _echo(rng, plain_sentence(rng))


def _echo(rng: Random, text: str) -> Exchange:
    return Exchange("echo", rng.choice(ECHO).format(x=text), text, f"echo {text}")
