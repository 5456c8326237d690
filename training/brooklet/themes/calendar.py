"""Days, months, opposites, colours, greetings abroad and emoji: small tables of the world."""

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
HELLO_IN = {
    "French": "Bonjour !",
    "Spanish": "¡Hola!",
    "German": "Grüß dich!",
    "Portuguese": "Olá!",
    "Italian": "Ciao!",
    "Russian": "Привет!",
    "Japanese": "こんにちは!",
    "Chinese": "你好!",
    "Greek": "Γειά σου!",
    "Swedish": "Hallå!",
}
EMOJI = {
    "fox": "🦊",
    "cat": "🐱",
    "dog": "🐶",
    "smile": "😊",
    "heart": "❤️",
    "star": "⭐",
    "wave": "🌊",
    "fish": "🐟",
    "frog": "🐸",
    "tree": "🌳",
    "sun": "☀️",
    "moon": "🌙",
    "owl": "🦉",
    "duck": "🦆",
}
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
    form = rng.choice(
        (
            "What {u} comes {s} {n}?",
            "Which {u} is {s} {n}?",
            "What is the {u} {s} {n}?",
            "What comes {s} {n}?",
            "Tell me the {u} {s} {n}.",
            "Which {u} comes {s} {n}",
        )
    )
    prompt = form.format(u=unit, s=side, n=names[index])
    return Exchange(f"{unit}s", prompt, f"The {unit} {side} {names[index]} is {found}.", prompt)


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
        )
    )
    prompt = form.format(x=thing)
    return Exchange("colour", prompt, f"{thing.capitalize()} is {shade}.", prompt)


def abroad(rng: Random, facts: Facts) -> Exchange:
    """Ask for a greeting in another language, or for an emoji."""
    if rng.random() < 0.5:
        language, greeting = rng.choice(list(HELLO_IN.items()))
        form = rng.choice(
            (
                "How do you say hello in {l}?",
                "Say hello in {l}.",
                "Hello in {l}?",
                "What is hello in {l}?",
                "Greet me in {l}.",
            )
        )
        prompt = form.format(l=language)
        return Exchange("greeting abroad", prompt, greeting, prompt)
    thing, emoji = rng.choice(list(EMOJI.items()))
    form = rng.choice(
        (
            "Show me a {x} emoji.",
            "Give me the {x} emoji.",
            "What is the emoji for {x}?",
            "{x} emoji",
            "Send me a {x} emoji!",
        )
    )
    prompt = form.format(x=thing)
    return Exchange("emoji", prompt, f"Here you are: {emoji}", prompt, answer=emoji)
