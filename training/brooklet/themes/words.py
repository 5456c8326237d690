"""Words: spelling, letters and repeating after the user."""

from __future__ import annotations

from random import Random

from training.brooklet.exchange import Exchange, Facts
from training.brooklet.themes.lexicon import any_word
from training.brooklet.themes.vocabulary import COMMON_NAMES, WORDS, made_up_word

ALPHABET = "abcdefghijklmnopqrstuvwxyz"

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
COUNT_LETTERS = (
    "How many letters are in {w}?",
    "How many letters does {w} have?",
    "How many letters are in the word {w}?",
    "How long is the word {w}?",
    "Count the letters of {w}.",
)
END_LETTER = (
    "What is the {k} letter of {w}?",
    "What's the {k} letter in {w}?",
    "Tell me the {k} letter of {w}.",
    "Which letter is {k} in {w}?",
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
    "Can you say {x}?",
    "Please say {x}",
)


def _spelled(word: str) -> str:
    """Part the letters with hyphens, which makes each a token of its own."""
    return "-".join(word)


def _spelling_key(word: str) -> str:
    """One key for every question about a word's letters, each of which gives the others away."""
    return f"letters {word.lower()}"


def spell(rng: Random, facts: Facts) -> Exchange:
    """Spell a word."""
    word = any_word(rng)
    prompt = rng.choice(SPELL).format(w=word)
    return Exchange("spell", prompt, _spelled(word), _spelling_key(word))


def letter_of(rng: Random, facts: Facts) -> Exchange:
    """Ask for the first or last letter of a word, or how many letters it has."""
    word = any_word(rng)
    kind = rng.choice(("first", "last", "count"))
    form = rng.choice(COUNT_LETTERS if kind == "count" else END_LETTER)
    if kind == "count":
        reply = f"The word {_spelled(word)} has {len(word)} letters."
    else:
        reply = f"The {kind} letter of {_spelled(word)} is {word[0 if kind == 'first' else -1]}."
    return Exchange("letters of", form.format(k=kind, w=word), reply, _spelling_key(word))


def letter_neighbour(rng: Random, facts: Facts) -> Exchange:
    """Ask for the letter before or after another."""
    index = rng.randint(1, 24)
    side = rng.choice(("before", "after"))
    letter = ALPHABET[index]
    found = ALPHABET[index + (1 if side == "after" else -1)]
    form = rng.choice(
        (
            "What letter comes {s} {x}?",
            "Which letter is {s} {x}?",
            "What is the letter {s} {x}?",
        )
    )
    prompt = form.format(s=side, x=rng.choice((letter, letter.upper())))
    return Exchange("alphabet", prompt, f"The letter {side} {letter} is {found}.", prompt)


def echo(rng: Random, facts: Facts) -> Exchange:
    """Repeat words back. Copying is the skill that recalling a name rests on."""
    pool = [*WORDS, *COMMON_NAMES]
    count = rng.randint(1, 6)
    words = [made_up_word(rng) if rng.random() < 0.4 else rng.choice(pool) for _ in range(count)]
    text = " ".join(words)
    return Exchange("echo", rng.choice(ECHO).format(x=text), text, f"echo {text}")
