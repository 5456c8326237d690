"""What happened under a level of load, as plain data."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Answer:
    """One answered request; times in seconds since it was sent."""

    #: When each event with text in it was read; at least one.
    text_times_s: tuple[float, ...]
    prompt_tokens: int
    completion_tokens: int

    @property
    def ttft_s(self) -> float:
        """Time to first token."""
        return self.text_times_s[0]

    @property
    def gaps_s(self) -> list[float]:
        """Between two events with text, one after the other."""
        return [b - a for a, b in itertools.pairwise(self.text_times_s)]

    @property
    def e2el_s(self) -> float:
        """End-to-end latency: until the last text."""
        return self.text_times_s[-1]


class RequestFailed(Exception):
    """A request without a whole answer."""

    def __init__(self, kind: str, message: str) -> None:
        """`kind` is short, and the same for what failed alike."""
        super().__init__(message)
        self.kind = kind


@dataclass(slots=True)
class Recording:
    """What happened under one level of load; filled while it happens."""

    num_prompts: int
    answers: list[Answer] = field(default_factory=list)
    failures: list[RequestFailed] = field(default_factory=list)
    duration_s: float = 0.0
    #: What the load generator itself, with all of its process, took of the processor.
    cpu_s: float = 0.0

    @property
    def num_ended(self) -> int:
        return len(self.answers) + len(self.failures)

    @property
    def num_unfinished(self) -> int:
        """Not sent, or under way when the time was over."""
        return self.num_prompts - self.num_ended
