"""The unit of the corpus: what the model reads, and what it has to write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from training.brooklet.exchange import is_held_out


@dataclass(frozen=True)
class Example:
    """One input with its only right output."""

    task: str
    source: str
    target: str
    key: str = ""  # names the item that may be held out; empty means always trained on


Task = Callable[[Random], Example]


def draw(task: Task, rng: Random, *, held_out: bool = False) -> Example:
    """Draw from a task until the item lies on the wanted side of the held-out split.

    Raises:
        LookupError: ten thousand items all lie on the other side.
    """
    for _ in range(10_000):
        example = task(rng)
        if is_held_out(example.key) == held_out:
            return example
    raise LookupError(f"{task.__name__} has no item with held_out={held_out}")


def ask(rng: Random, phrasings: Sequence[str], content: str) -> str:
    """Put a request as people type it: now and then without a capital, or with a full stop."""
    phrasing = rng.choice(phrasings)
    if rng.random() < 0.2 and not phrasing[:2].isupper():
        phrasing = phrasing[0].lower() + phrasing[1:]
    text = phrasing.format(content)
    if text[-1].isalnum() and rng.random() < 0.2:
        text += "."
    return text


def typed(rng: Random, sentence: str) -> str:
    """A sentence as people type it: now and then without its full stop."""
    return sentence.removesuffix(".") if rng.random() < 0.1 else sentence
