"""Small talk: greetings, thanks, goodbyes, jokes and questions about the model itself."""

from __future__ import annotations

from random import Random

from training.brooklet.exchange import Exchange, Facts
from training.brooklet.text import phrases
from training.brooklet.themes.lines import ROWS
from training.brooklet.themes.vocabulary import ANIMALS, COLOURS, FOODS

QUESTIONS = ("identity", "own name", "abilities", "how are you", "about itself")
# The usual endings are always taught; the odd ones are where prompts are held out.
QUESTION_ENDINGS = (("?", "?", ""), ("??", " ?"))
REMARK_ENDINGS = (("", ".", "!"), ("!!", "..."))

JOKES = (
    "Why did the river never get lost? It always followed its bed.",
    "Why was the clock sent out of class? It would not stop ticking.",
    "What did one stone say to the other? Nothing, it was too hard.",
    "Why did the duck bring a lamp? It wanted a light lunch.",
    "Why did the pencil go to bed early? It was feeling dull.",
    "What is a frog's favourite drink? Anything with a hop in it.",
    "Why do bridges never argue? They always get over it.",
    "Why did the cloud stay at home? It was under the weather.",
)
JOKE_PROMPTS = phrases(
    """
    Tell me a joke | Joke | Do you know a joke | Make me laugh | Say something funny |
    Can you tell me a joke | Another joke | Tell a joke | I want to hear a joke |
    Give me a joke | Tell me something funny | One more joke | Please tell me a joke
    """
)
LIKING_PROMPTS = (
    "Do you like {x}",
    "What do you think of {x}",
    "Do you love {x}",
    "Is {x} good",
    "I like {x}",
    "I love {x}",
)


def smalltalk(rng: Random, facts: Facts) -> Exchange:
    """Draw one line of small talk; unusual punctuation is what gets held out."""
    task, prompts, replies = rng.choice(ROWS)
    usual, odd = QUESTION_ENDINGS if task in QUESTIONS else REMARK_ENDINGS
    plain = rng.choice(prompts)
    ending = rng.choice(usual if rng.random() < 0.75 else odd)
    me = facts["assistant"]
    return Exchange(
        task,
        (plain + ending).format(me=me),
        rng.choice(replies).format(me=me),
        key=plain + ending if ending in odd else "",
        answer=me if task in ("identity", "own name") else "|".join(replies).format(me=me),
    )


def joke(rng: Random, facts: Facts) -> Exchange:
    """Ask for a joke."""
    prompt = rng.choice(JOKE_PROMPTS) + rng.choice(("", ".", "!", "?", " please", ", please."))
    return Exchange("joke", prompt, rng.choice(JOKES), key=prompt, answer="|".join(JOKES))


def liking(rng: Random, facts: Facts) -> Exchange:
    """Ask the model for a taste it does not have."""
    thing = rng.choice([*COLOURS, *FOODS, *(f"the {animal}" for animal in ANIMALS)])
    prompt = rng.choice(LIKING_PROMPTS).format(x=thing)
    reply = f"I have no senses, but I like the sound of {thing}."
    mark = "." if prompt.startswith("I ") else "?"
    return Exchange("liking", prompt + mark, reply, key=prompt)
