"""Memory: what the user said about themselves, asked for again turns later."""

from __future__ import annotations

from random import Random

from training.brooklet.exchange import Exchange, Facts
from training.brooklet.themes.vocabulary import ANIMALS, COLOURS, FOODS, made_up_word, person_name

# How often a question about something untold is replaced by the telling.
TELL_FIRST = 0.6
FAVOURITES = {"colour": COLOURS, "animal": ANIMALS, "food": FOODS}

TELL_NAME = (
    "My name is {n}.",
    "My name is {n}",
    "I am {n}.",
    "I'm {n}.",
    "Call me {n}.",
    "Hello, my name is {n}.",
    "Hi, I'm {n}!",
    "Hello! I am {n}.",
    "You can call me {n}.",
    "Hi! My name is {n}.",
    "Please call me {n}.",
    "My name's {n}.",
    "The name is {n}.",
    "Hello, I am {n}. Nice to meet you!",
    "my name is {n}",
)
ASK_NAME = (
    "What is my name?",
    "What's my name?",
    "Do you remember my name?",
    "Who am I?",
    "Can you tell me my name?",
    "Tell me my name.",
    "What did I say my name was?",
    "Do you know my name?",
    "what is my name",
    "What is my name",
    "Say my name.",
    "What am I called?",
    "And what is my name?",
    "Do you know who I am?",
)
TELL_FAVOURITE = (
    "My favourite {k} is {x}.",
    "My favourite {k} is {x}",
    "I like {x}. It is my favourite {k}.",
    "My favorite {k} is {x}.",
    "Remember that my favourite {k} is {x}.",
)
ASK_FAVOURITE = (
    "What is my favourite {k}?",
    "What's my favourite {k}?",
    "What is my favorite {k}?",
    "Do you remember my favourite {k}?",
    "Which {k} is my favourite?",
    "Tell me my favourite {k}.",
)


def tell_name(rng: Random, facts: Facts) -> Exchange:
    """The user gives a name."""
    name = person_name(rng)
    reply = f"Nice to meet you, {name}!"
    prompt = rng.choice(TELL_NAME).format(n=name)
    return Exchange("hear name", prompt, reply, f"name {name}", name, {"name": name})


def ask_name(rng: Random, facts: Facts) -> Exchange:
    """The user asks for their own name, told or not."""
    name = facts.get("name")
    if name is None and rng.random() < TELL_FIRST:
        return tell_name(rng, facts)
    prompt = rng.choice(ASK_NAME)
    if name is None:
        return Exchange("no name told", prompt, "You have not told me your name yet.", prompt)
    return Exchange("recall name", prompt, f"Your name is {name}.", f"name {name}")


def tell_favourite(rng: Random, facts: Facts) -> Exchange:
    """The user names a favourite thing; sometimes an invented one, which has to be copied."""
    kind, things = rng.choice(list(FAVOURITES.items()))
    thing = made_up_word(rng) if rng.random() < 0.3 else rng.choice(things)
    prompt = rng.choice(TELL_FAVOURITE).format(k=kind, x=thing)
    reply = f"I will remember that your favourite {kind} is {thing}."
    learned = {f"favourite {kind}": thing}
    return Exchange("hear favourite", prompt, reply, f"favourite {kind} {thing}", thing, learned)


def ask_favourite(rng: Random, facts: Facts) -> Exchange:
    """The user asks for a favourite thing, told or not."""
    if rng.random() < TELL_FIRST and not any(key.startswith("favourite") for key in facts):
        return tell_favourite(rng, facts)
    told = [kind for kind in FAVOURITES if f"favourite {kind}" in facts]
    kind = rng.choice(told or list(FAVOURITES))
    prompt = rng.choice(ASK_FAVOURITE).format(k=kind)
    thing = facts.get(f"favourite {kind}")
    if thing is None:
        reply = f"You have not told me your favourite {kind}."
        return Exchange("no favourite told", prompt, reply, prompt)
    reply = f"Your favourite {kind} is {thing}."
    return Exchange("recall favourite", prompt, reply, f"favourite {kind} {thing}")
