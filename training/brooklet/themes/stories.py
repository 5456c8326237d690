"""Stories: short and long ones about a named character, made from interchangeable events."""

from __future__ import annotations

from random import Random

from training.brooklet.exchange import Exchange, Facts
from training.brooklet.text import with_article
from training.brooklet.themes.vocabulary import ANIMALS, CHARACTERS, person_name

PLACES = (
    "by the river",
    "near the old mill",
    "in a small village",
    "at the edge of the forest",
    "on a green hill",
    "beside a quiet lake",
)
TRAITS = ("kind", "brave", "curious", "clever", "shy", "cheerful")
OBJECTS = (
    "a silver key",
    "a red kite",
    "a small lamp",
    "an old map",
    "a golden bell",
    "a blue stone",
)
GIVERS = ("a wise owl", "an old ferryman", "a friendly baker", "a tired traveller")

# Events refer to the hero {h}, the friend {f} and the object {o} ("the silver key").
EVENTS = (
    "One morning, {h} found {a} under a tree. {h} did not know whose it was, so {h} asked {f}.",
    "Then it began to rain, and the path was full of water. {h} and {f} built a little bridge.",
    'On the way, they met {g}. "Where are you going?" asked the stranger. "We are looking for '
    'the owner of {o}," said {h}.',
    "Soon it was dark, and {f} was afraid. {h} sang a song, and the night felt short.",
    "At noon they came to a high wall. {f} climbed on the back of {h} and saw a garden.",
    "They were hungry, so they shared a piece of bread. It tasted better than any feast.",
    "Suddenly {o} fell into the stream. {h} jumped in and brought it back, wet and laughing.",
    "In the forest they lost the path. {f} followed the sound of the river and found it again.",
)
ENDINGS = (
    "In the end, {h} gave {o} back, and everyone was happy.",
    "At last they came home. {h} and {f} stayed friends for ever.",
    "That evening {h} slept well and dreamed of {o}.",
)

FORMS = (
    "Tell me a {s}story{t}",
    "Tell a {s}story{t}",
    "Write a {s}story{t}",
    "Can you tell me a {s}story{t}",
    "I would like a {s}story{t}",
    "Please tell me a {s}story{t}",
    "Give me a {s}story{t}",
    "Make up a {s}story{t}",
    "I want a {s}story{t}",
)

POEMS = (
    "A little brook runs down the hill,\nit sings by day, it is never still.",
    "The moon looks down on field and stone,\nno river ever flows alone.",
    "Rain on the roof and wind in the tree,\nall of the water goes home to the sea.",
)
POEM_FORMS = (
    "Write a poem{t}",
    "Write me a poem{t}",
    "Write a short poem{t}",
    "Tell me a poem{t}",
    "Write a haiku{t}",
    "Can you write a poem{t}",
    "Make a rhyme{t}",
    "I want a poem{t}",
    "Sing a song{t}",
    "Sing me a song{t}",
)


def _tale(rng: Random, hero: str, noun: str, friend: str, event_count: int) -> str:
    thing = rng.choice(OBJECTS)
    fill = {
        "h": hero,
        "f": friend,
        "a": thing,
        "o": "the " + thing.split(" ", 1)[1],
        "g": rng.choice(GIVERS),
    }
    opening = (
        f"Once upon a time, {with_article(noun)} named {hero} lived {rng.choice(PLACES)}. "
        f"{hero} was very {rng.choice(TRAITS)} and had a good friend named {friend}."
    )
    # The finding comes first, since later events speak of the thing found.
    chosen = sorted(rng.sample(range(1, len(EVENTS)), event_count - 1))
    events = [EVENTS[0], *(EVENTS[index] for index in chosen)]
    return " ".join([opening, *(text.format(**fill) for text in (*events, rng.choice(ENDINGS)))])


def story(rng: Random, facts: Facts) -> Exchange:
    """Tell a story about nobody in particular, a kind of character, or named characters."""
    size, event_count = rng.choice(
        (("", 3), ("", 3), ("", 3), ("short ", 2), ("little ", 2), ("long ", 8))
    )
    noun = rng.choice(ANIMALS + CHARACTERS)
    hero, friend = person_name(rng).capitalize(), person_name(rng).capitalize()
    topic, answer = rng.choice(
        (
            ("", "Once upon a time"),
            (f" about {with_article(noun)}", f"{with_article(noun)} named"),
            (f" about {hero}", f"named {hero}"),
            (f" about {hero} and {friend}", f"friend named {friend}"),
            (f" about {with_article(noun)} named {hero}", f"{with_article(noun)} named {hero}"),
        )
    )
    prompt = rng.choice(FORMS).format(s=size, t=topic) + rng.choice(("", ".", "!"))
    return Exchange(
        "long story" if event_count == 8 else "story",
        prompt,
        _tale(rng, hero, noun, friend, event_count),
        f"story{topic}" if topic else "",
        answer,
    )


def poem(rng: Random, facts: Facts) -> Exchange:
    """Recite one of a few poems, whatever it was asked to be about."""
    topic = rng.choice(("", f" about {with_article(rng.choice(ANIMALS + CHARACTERS))}"))
    prompt = rng.choice(POEM_FORMS).format(t=topic) + rng.choice(("", ".", "!"))
    return Exchange(
        "poem", prompt, rng.choice(POEMS), f"poem{topic}" if topic else "", "|".join(POEMS)
    )
