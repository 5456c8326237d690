"""Days, months, opposites, colours and lists: small tables of the world."""

from __future__ import annotations

from random import Random

from training.brooklet.exchange import Exchange, Facts
from training.brooklet.text import listed, words

DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = words(
    """
    January February March April May June July August September October November December
    """
)

OPPOSITES = [
    pair.split("-")
    for pair in words(
        """
        hot-cold big-small up-down left-right fast-slow day-night light-dark happy-sad
        open-closed full-empty high-low old-young hard-soft wet-dry loud-quiet rich-poor
        strong-weak near-far early-late long-short thick-thin clean-dirty good-bad black-white
        first-last inside-outside true-false begin-end push-pull win-lose buy-sell love-hate
        yes-no in-out on-off warm-cool deep-shallow wide-narrow heavy-light smooth-rough
        """
    )
]

COLOUR_OF = {
    "the sky": "blue",
    "grass": "green",
    "snow": "white",
    "the sun": "yellow",
    "coal": "black",
    "a banana": "yellow",
    "a lemon": "yellow",
    "a carrot": "orange",
    "a leaf": "green",
    "milk": "white",
    "a cherry": "red",
    "a strawberry": "red",
    "a frog": "green",
    "a pumpkin": "orange",
    "the sea": "blue",
    "chocolate": "brown",
    "a plum": "purple",
    "a flamingo": "pink",
    "a crow": "black",
    "an elephant": "grey",
    "blood": "red",
}
MIXES = {
    ("blue", "yellow"): "green",
    ("red", "yellow"): "orange",
    ("red", "blue"): "purple",
    ("black", "white"): "grey",
    ("red", "white"): "pink",
}
DAYS_OF = dict(zip(MONTHS, (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), strict=True))
AMOUNTS = (
    ("days", "a week", 7),
    ("months", "a year", 12),
    ("days", "a year", 365),
    ("weeks", "a year", 52),
    ("hours", "a day", 24),
    ("minutes", "an hour", 60),
    ("seconds", "a minute", 60),
    ("seasons", "a year", 4),
    ("years", "a century", 100),
)
PLACES = words("first second third fourth fifth sixth seventh")
PLACES += words("eighth ninth tenth eleventh twelfth")
NEIGHBOUR = (
    "What {u} comes {s} {n}?",
    "Which {u} is {s} {n}?",
    "What is the {u} {s} {n}?",
    "What comes {s} {n}?",
    "Tell me the {u} {s} {n}.",
    "Which {u} comes {s} {n}",
    "What {u} is {s} {n}?",
    "The {u} {s} {n} is?",
    "Give me the {u} {s} {n}.",
    "Do you know the {u} {s} {n}?",
)
ORDER = (
    "What is the {k} {u} of the {w}?",
    "Which is the {k} {u} of the {w}?",
    "Which {u} is the {k} of the {w}?",
    "What's the {k} {u} of the {w}?",
    "Tell me the {k} {u} of the {w}.",
    "Name the {k} {u} of the {w}.",
    "Which {u} comes {k} in the {w}?",
    "What {u} comes {k} in the {w}?",
    "The {k} {u} of the {w} is?",
    "Do you know the {k} {u} of the {w}?",
)
AMOUNT = (
    "How many {u} are in {w}?",
    "How many {u} does {w} have?",
    "How many {u} are there in {w}?",
    "How many {u} has {w}?",
    "How many {u} make {w}?",
    "Tell me how many {u} {w} has.",
    "What number of {u} does {w} have?",
    "{w} has how many {u}?",
    "Do you know how many {u} are in {w}?",
    "Can you say how many {u} {w} has?",
)
LISTS = {
    "the days of the week": DAYS,
    "the months of the year": MONTHS,
    "the months": MONTHS,
    "the days": DAYS,
    "the seasons": words("spring summer autumn winter"),
    "the colours of the rainbow": words("red orange yellow green blue indigo violet"),
    "the letters of the alphabet": list("abcdefghijklmnopqrstuvwxyz"),
    "the alphabet": list("abcdefghijklmnopqrstuvwxyz"),
}


def neighbour(rng: Random, facts: Facts) -> Exchange:
    """Ask for the day or month before or after another."""
    names = rng.choice((DAYS, MONTHS))
    unit = "day" if names is DAYS else "month"
    index = rng.randrange(len(names))
    side = rng.choice(("before", "after"))
    found = names[(index + (1 if side == "after" else -1)) % len(names)]
    prompt = rng.choice(NEIGHBOUR).format(u=unit, s=side, n=names[index])
    return Exchange(f"{unit}s", prompt, f"The {unit} {side} {names[index]} is {found}.", prompt)


def order(rng: Random, facts: Facts) -> Exchange:
    """Ask for the day or month at a place of the week or year."""
    names, unit, whole = rng.choice(((DAYS, "day", "week"), (MONTHS, "month", "year")))
    index = rng.randrange(len(names))
    prompt = rng.choice(ORDER).format(k=PLACES[index], u=unit, w=whole)
    reply = f"The {PLACES[index]} {unit} of the {whole} is {names[index]}."
    return Exchange("order", prompt, reply, prompt)


def amount(rng: Random, facts: Facts) -> Exchange:
    """Ask how many days a month has, hours a day, and the like."""
    months = [("days", month, number) for month, number in DAYS_OF.items()]
    unit, whole, number = rng.choice(rng.choice((months, AMOUNTS)))
    prompt = rng.choice(AMOUNT).format(u=unit, w=whole)
    prompt = prompt[0].upper() + prompt[1:]
    whole = whole[0].upper() + whole[1:]
    return Exchange("amount", prompt, f"{whole} has {number} {unit}.", prompt)


def list_of(rng: Random, facts: Facts) -> Exchange:
    """Ask for a well-known list."""
    name, items = rng.choice(list(LISTS.items()))
    form = rng.choice(
        (
            "List {x}.",
            "What are {x}?",
            "Name {x}.",
            "Tell me {x}.",
            "Can you list {x}?",
            "Say {x}.",
            "Please list {x}",
            "Write {x}",
            "Recite {x}.",
            "Do you know {x}?",
        )
    )
    prompt = form.format(x=name)
    return Exchange("list", prompt, listed(items), prompt)


def opposite(rng: Random, facts: Facts) -> Exchange:
    """Ask for the opposite of a word."""
    pair = rng.choice(OPPOSITES)
    word, other = pair if rng.random() < 0.5 else reversed(pair)
    if word == "light":  # two pairs share this word
        other = "dark"
    form = rng.choice(
        (
            "What is the opposite of {w}?",
            "Opposite of {w}",
            "Tell me the opposite of {w}.",
            "What's the opposite of {w}?",
            "The opposite of {w} is?",
            "Give me the opposite of {w}",
            "What is the contrary of {w}?",
            "Which word is the opposite of {w}?",
            "Do you know the opposite of {w}?",
            "Say the opposite of {w}.",
            "The opposite of {w}",
        )
    )
    prompt = form.format(w=word)
    return Exchange("opposite", prompt, f"The opposite of {word} is {other}.", prompt)


def colour(rng: Random, facts: Facts) -> Exchange:
    """Ask for the colour of a thing, or of a mixture."""
    if rng.random() < 0.3:
        (first, second), mixed = rng.choice(list(MIXES.items()))
        if rng.random() < 0.5:
            first, second = second, first
        form = rng.choice(
            (
                "What do you get when you mix {a} and {b}?",
                "Mix {a} and {b}.",
                "What colour do {a} and {b} make?",
                "What is {a} mixed with {b}?",
                "Which colour do {a} and {b} make?",
                "What colour is {a} mixed with {b}?",
                "I mix {a} and {b}. What colour is it?",
                "What do {a} and {b} make when mixed?",
                "What is {a} and {b} mixed?",
                "What happens when I mix {a} and {b}?",
            )
        )
        prompt = form.format(a=first, b=second)
        return Exchange(
            "colour", prompt, f"{first.capitalize()} and {second} make {mixed}.", prompt
        )
    thing, shade = rng.choice(list(COLOUR_OF.items()))
    form = rng.choice(
        (
            "What colour is {x}?",
            "What is the colour of {x}?",
            "Which colour is {x}?",
            "Tell me the colour of {x}.",
            "What color is {x}?",
            "What's the colour of {x}?",
            "What colour has {x}?",
            "Do you know the colour of {x}?",
            "Say the colour of {x}.",
            "The colour of {x} is?",
        )
    )
    prompt = form.format(x=thing)
    return Exchange("colour", prompt, f"{thing.capitalize()} is {shade}.", prompt)
