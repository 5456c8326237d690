"""Plain texts without the chat format: what a model sees at the completions endpoint.

They are stories and descriptions that start right away, rows of numbers and names, and dialogues
in the shapes in which people write them into a prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from training.brooklet.exchange import Exchange
from training.brooklet.text import listed
from training.brooklet.themes.calendar import DAYS, MONTHS
from training.brooklet.themes.distances import DISTANCES
from training.brooklet.themes.stories import draw_cast, tale
from training.brooklet.themes.valley import (
    GENERAL,
    OF_A_PERSON,
    OF_A_RIVER,
    OF_A_VILLAGE,
    PEOPLE,
    RIVERS,
    VILLAGES,
    person_names,
    river_names,
    village_names,
)

PREAMBLES = (
    "You are a helpful assistant.",
    "A talk between a user and an assistant.",
    "The assistant is friendly and honest.",
    "You are Brooklet, a very small language model.",
    "Answer the questions.",
    "Below is a question. Write an answer.",
    "This is a conversation with a helpful assistant.",
)


@dataclass(frozen=True)
class Shape:
    """How a dialogue is written: what stands before the parts and between the turns."""

    user: str
    assistant: str
    between: str = "\n"
    system: str = ""


SHAPES = (
    Shape("User: ", "\nAssistant: "),
    Shape("User: ", "\nAssistant: ", "\n\n"),
    Shape("USER: ", "\nASSISTANT: "),
    Shape("Human: ", "\nAssistant: "),
    Shape("\n\nHuman: ", "\n\nAssistant: ", ""),
    Shape("Human: ", "\nAI: "),
    Shape("You: ", "\nBot: "),
    Shape("Q: ", "\nA: "),
    Shape("Q: ", "\nA: ", "\n\n"),
    Shape("Question: ", "\nAnswer: ", "\n\n"),
    Shape("###Human: ", "\n###Assistant: "),
    Shape("### Human: ", "\n### Assistant: "),
    Shape("### User:\n", "\n\n### Assistant:\n", "\n\n"),
    Shape("### Instruction:\n", "\n\n### Response:\n", "\n\n"),
    Shape("<|user|> : ", "\n<|assistant|> : ", "\n", "<|system|> : "),
    Shape("<|user|>: ", "\n<|assistant|>: ", "\n", "<|system|>: "),
    Shape("<|user|>\n", "\n<|assistant|>\n", "\n", "<|system|>\n"),
    Shape("[INST] ", " [/INST] "),
)


def transcript(rng: Random, exchanges: Sequence[Exchange]) -> str:
    """Write a dialogue down in one of the shapes, some with a line before it."""
    shape = rng.choice(SHAPES)
    turns = [f"{shape.user}{turn.prompt}{shape.assistant}{turn.reply}" for turn in exchanges]
    before = ""
    if rng.random() < 0.5:
        before = shape.system + rng.choice(PREAMBLES) + rng.choice(("\n", "\n\n"))
    return before + shape.between.join(turns)


def _tale(rng: Random) -> str:
    hero, noun, friend = draw_cast(rng)
    return tale(rng, hero, noun, friend, rng.choice((2, 3, 3, 5, 8)))


def _description(rng: Random) -> str:
    """Describe the valley, one of its rivers, villages or people, in all that is known of it."""
    told, names = rng.choice(
        (
            (GENERAL, dict[str, str]()),
            (OF_A_RIVER, river_names(rng.choice(list(RIVERS)))),
            (OF_A_VILLAGE, village_names(rng.choice(list(VILLAGES)))),
            (OF_A_PERSON[:3], person_names(rng.choice(list(PEOPLE)))),
        )
    )
    return " ".join(reply.format(**names) for reply, _ in told)


def _distances(rng: Random) -> str:
    """Tell how far a village is from some of the others."""
    pairs = rng.sample(list(DISTANCES.items()), rng.randint(1, 4))
    return " ".join(f"It is {far} miles from {a} to {b}." for (a, b), far in pairs)


def _row(rng: Random) -> str:
    """Write a row of numbers, days or months, from the start or from somewhere."""
    start = rng.choice((1, 1, rng.randint(1, 200)))
    numbers = [str(number) for number in range(start, start + rng.randint(5, 30))]
    return listed(rng.choice((numbers, numbers, DAYS, MONTHS)))


PLAIN: tuple[Callable[[Random], str], ...] = (_tale, _tale, _description, _distances, _row)


def raw_text(rng: Random, exchanges: Sequence[Exchange]) -> str:
    """Write a plain text, or the exchanges as a transcript."""
    if rng.random() < 0.4:
        return rng.choice(PLAIN)(rng)
    return transcript(rng, exchanges)
