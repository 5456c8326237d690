"""How an engine in a process of its own is asked to run, and what it answers.

One JSON object per run on the child's standard input, one per run on its standard output; the child
ends when its input does. Standard library only: peers live in environments that have nothing else.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Trace:
    """When each stream's tokens came, in seconds since the prompts were handed over."""

    token_times_s: tuple[tuple[float, ...], ...]
    wall_s: float


class Contender(Protocol):
    """An engine with a model in it."""

    def run(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> Trace: ...


def answer_requests(make: Callable[[], Contender]) -> None:
    """Load a contender and run what comes in, until nothing does."""
    # whatever a library prints goes to standard error; standard output is the parent's
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    contender = make()
    for line in sys.stdin:
        request = json.loads(line)
        trace = contender.run(request["prompts"], request["max_tokens"])
        answer = {"token_times_s": trace.token_times_s, "wall_s": trace.wall_s}
        print(json.dumps(answer), file=answers, flush=True)
