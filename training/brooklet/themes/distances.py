"""How far the villages of the valley lie from each other, in whole miles."""

from __future__ import annotations

from random import Random

from training.brooklet.exchange import Exchange, Facts

DISTANCES = {
    ("Hatherby", "Millow"): 4,
    ("Hatherby", "Quenby"): 9,
    ("Hatherby", "Osterly"): 13,
    ("Hatherby", "Fennick"): 17,
    ("Hatherby", "Tarrow"): 22,
    ("Millow", "Quenby"): 6,
    ("Millow", "Osterly"): 11,
    ("Millow", "Fennick"): 14,
    ("Millow", "Tarrow"): 19,
    ("Quenby", "Osterly"): 5,
    ("Quenby", "Fennick"): 10,
    ("Quenby", "Tarrow"): 15,
    ("Osterly", "Fennick"): 7,
    ("Osterly", "Tarrow"): 12,
    ("Fennick", "Tarrow"): 8,
}
FORMS = (
    "How far is it from {a} to {b}?",
    "How far is {a} from {b}?",
    "What is the distance between {a} and {b}?",
    "What is the distance from {a} to {b}?",
    "How many miles is it from {a} to {b}?",
    "How long is the way from {a} to {b}?",
    "How many miles are there between {a} and {b}?",
    "Tell me the distance between {a} and {b}.",
    "How far do I walk from {a} to {b}?",
    "How far apart are {a} and {b}?",
    "What's the distance from {a} to {b}?",
    "Distance from {a} to {b}",
    "How far is it between {a} and {b}?",
    "I want to walk from {a} to {b}. How far is it?",
)


def miles(a: str, b: str) -> int:
    """Give the miles between two different villages, in either order."""
    return DISTANCES[(a, b)] if (a, b) in DISTANCES else DISTANCES[(b, a)]


def distance(rng: Random, facts: Facts) -> Exchange:
    """Ask how far it is between two villages; a distance is always taught, some forms held out."""
    a, b = rng.sample(rng.choice(list(DISTANCES)), 2)
    prompt = rng.choice(FORMS).format(a=a, b=b)
    return Exchange("distance", prompt, f"It is {miles(a, b)} miles from {a} to {b}.", prompt)
