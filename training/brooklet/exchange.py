"""The unit of the corpus: one prompt with its reply, and the rule for what is held out."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

# What a conversation has established so far: "assistant", "name", "favourite colour", ...
Facts = dict[str, str]


@dataclass(frozen=True)
class ToolUse:
    """One call of a tool, and what the tool gave back."""

    name: str
    arguments: dict[str, Any]
    result: str


@dataclass(frozen=True)
class Exchange:
    """One user turn and the reply it should get."""

    task: str
    prompt: str
    reply: str
    key: str = ""  # names the item that may be held out; empty means always trained on
    answer: str = ""  # what a correct reply contains, alternatives split by |; empty: the reply
    learned: Facts = field(default_factory=dict)  # facts this turn adds to the conversation
    uses: tuple[ToolUse, ...] = ()  # tools called together, in a turn of their own before the reply
    thought: str = ""  # steps that lead to the reply, said only where thinking is on


Theme = Callable[[Random, Facts], Exchange]


def is_held_out(key: str) -> bool:
    """Reserve one item in ten for evaluation, by a hash so that no list needs storing."""
    return bool(key) and zlib.crc32(key.encode()) % 10 == 0


def draw(theme: Theme, rng: Random, facts: Facts, *, held_out: bool = False) -> Exchange:
    """Draw from a theme until the item lies on the wanted side of the held-out split."""
    for _ in range(10_000):
        exchange = theme(rng, facts)
        if is_held_out(exchange.key) == held_out:
            return exchange
    raise LookupError(f"{theme.__name__} has no item with held_out={held_out}")
