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

# Events refer to the hero {h}, the friend {f} and the object {o} ("the silver key"). A story keeps
# their order: the finding comes first, since later events speak of the thing found. None of the
# others needs another one.
EVENTS = (
    "One morning, {h} found {a} under a tree. {h} did not know whose it was, so {h} asked {f}.",
    "{f} turned {o} round and round. There was a tiny river drawn on one side of it.",
    'So {h} and {f} packed some bread and set out. "We will be back by evening," said {f}.',
    "Then it began to rain, and the path was full of water. {h} and {f} built a little bridge.",
    'On the way, they met {g}. "Where are you going?" asked the stranger. "We are looking for '
    'the owner of {o}," said {h}.',
    "At noon they came to a high wall. {f} climbed on the back of {h} and saw a garden.",
    "By the path stood a tree full of golden apples. {h} picked one apple and gave half to {f}.",
    "A small bird sat on a gate and told them the way. It had seen {o} once before, long ago.",
    "In the grass lay a hat full of rain water. {h} drank a little of it and put the hat on {f}.",
    "They were hungry, so they shared a piece of bread. It tasted better than any feast.",
    "Suddenly {o} fell into the stream. {h} jumped in and brought it back, wet and laughing.",
    "{f} made a fire, and {h} sat close to it for an hour. They told each other jokes.",
    "In the forest they lost the path. {f} followed the sound of the river and found it again.",
    "Behind a rock sat a lamb that could not find its mother. {h} carried it down the hill, and "
    "the shepherd played a merry tune for {f}.",
    "On a hill stood an old clock that had stopped at noon. {f} wound it up, and {h} counted the "
    "strokes.",
    "Soon it was dark, and {f} was afraid. {h} sang a song, and the night felt short.",
    "Then a storm came, and they hid in an empty barn. {h} held {o} so that it stayed dry.",
    "When they woke up, the world was white with fog. {h} went first, and {f} followed closely.",
    "A cat slept in the middle of the road and would not move. {h} walked around it on tiptoe, and "
    "{f} did the same.",
    "They crossed a bridge that was only one plank wide. {f} did not look down until it was over.",
    "At a mill the wheel stood still, for a branch was stuck in it. {h} and {f} pulled it out, "
    "and the miller gave them a ride on his cart.",
    "In the market {h} showed {o} to everybody. Nobody knew it, but an old woman smiled and said "
    'to {f}, "Go to the lake."',
    "In an inn by the road they had hot soup. {f} told the whole room about {o}, and {h} turned "
    "red.",
    "By the lake there was a blue door without a handle. {h} knocked three times, and {f} waited.",
    "A giant with a long beard looked out of a cave. He was very shy, so {h} and {f} sang for him.",
    'A star fell from the sky, and {h} made a wish. "I wish that {f} and I may always travel '
    'together," said {h}.',
)
ENDINGS = (
    "In the end, {h} gave {o} back, and everyone was happy.",
    "At last they came home. {h} and {f} stayed friends for ever.",
    "That evening {h} slept well and dreamed of {o}.",
)
LONG = 24  # events of a long story
IN_A_CHAPTER = 2  # of a long story's events; by the number of its last chapter it finds its end

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
    "Write me a {s}story{t}",
    "I want to hear a {s}story{t}",
    "Could you write a {s}story{t}",
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
    "Recite a poem{t}",
    "Give me a poem{t}",
)


def tale(rng: Random, hero: str, noun: str, friend: str, event_count: int) -> str:
    """Tell how a hero, who is a kind of character, found a thing, in so many events.

    A long one has numbered chapters.
    """
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
    chosen = sorted(rng.sample(range(1, len(EVENTS)), event_count - 1))
    events = [EVENTS[0], *(EVENTS[index] for index in chosen)]
    if event_count == LONG:
        for chapter, index in enumerate(range(0, LONG, IN_A_CHAPTER), start=1):
            events[index] = f"Chapter {chapter}. {events[index]}"
    return " ".join([opening, *(text.format(**fill) for text in (*events, rng.choice(ENDINGS)))])


def draw_cast(rng: Random) -> tuple[str, str, str]:
    """Draw a hero, what the hero is, and a friend of another name."""
    hero = friend = person_name(rng).capitalize()
    while friend == hero:
        friend = person_name(rng).capitalize()
    return hero, rng.choice(ANIMALS + CHARACTERS), friend


def _story(rng: Random, task: str, size: str, event_count: int) -> Exchange:
    """Ask for a story about nobody in particular, a kind of character, or named characters."""
    hero, noun, friend = draw_cast(rng)
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
    told = tale(rng, hero, noun, friend, event_count)
    return Exchange(task, prompt, told, f"story{topic}" if topic else "", answer)


def story(rng: Random, facts: Facts) -> Exchange:
    """Tell a story of a few sentences."""
    return _story(rng, "story", *rng.choice((("", 3), ("", 3), ("short ", 2), ("little ", 2))))


def long_story(rng: Random, facts: Facts) -> Exchange:
    """Tell a story of about fifty sentences, which takes more than seven hundred tokens."""
    return _story(rng, "long story", rng.choice(("long ", "long ", "very long ")), LONG)


def poem(rng: Random, facts: Facts) -> Exchange:
    """Recite one of a few poems, whatever it was asked to be about."""
    topic = rng.choice(("", f" about {with_article(rng.choice(ANIMALS + CHARACTERS))}"))
    prompt = rng.choice(POEM_FORMS).format(t=topic) + rng.choice(("", ".", "!"))
    return Exchange(
        "poem", prompt, rng.choice(POEMS), f"poem{topic}" if topic else "", "|".join(POEMS)
    )
