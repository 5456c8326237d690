"""Words: spelling, letters and repeating after the user."""

from __future__ import annotations

from random import Random

from training.brooklet.exchange import Exchange, Facts
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
    "Spell {w} for me",
    "Spell: {w}",
    'Spell "{w}"',
    "Spell '{w}'.",
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


def spell(rng: Random, facts: Facts) -> Exchange:
    """Spell a listed word, or a made-up one, of which some are held out."""
    if rng.random() < 0.6:
        word, key = rng.choice(WORDS), ""
    else:
        word = made_up_word(rng)
        key = f"spell {word}"
    return Exchange("spell", rng.choice(SPELL).format(w=word), "-".join(word), key)


def letter_of(rng: Random, facts: Facts) -> Exchange:
    """Ask for the first or last letter of a word, or how many letters it has."""
    word = rng.choice(WORDS)
    kind = rng.choice(("first", "last", "count"))
    if kind == "count":
        form = rng.choice(
            (
                "How many letters are in {w}?",
                "How many letters does {w} have?",
                "How long is {w}?",
            )
        )
        prompt = form.format(w=word)
        reply = f"The word {word} has {len(word)} letters."
    else:
        form = rng.choice(
            (
                "What is the {k} letter of {w}?",
                "What's the {k} letter in {w}?",
                "Tell me the {k} letter of {w}.",
                "Which letter is {k} in {w}?",
            )
        )
        prompt = form.format(k=kind, w=word)
        reply = f"The {kind} letter of {word} is {word[0] if kind == 'first' else word[-1]}."
    return Exchange("letters of", prompt, reply, prompt)


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
