"""What the scenarios ask for, and how often."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from client import Follower
from ops import Countdown, CountedEvents, Lives, route_of

MAX_TOKENS = 300
GREEDY = {"max_tokens": MAX_TOKENS, "ignore_eos": True, "temperature": 0}
SAMPLED = {"max_tokens": MAX_TOKENS, "ignore_eos": True, "temperature": 0.9, "top_p": 0.95}
#: Those to which the built-in model has much to say.
PROMPTS = (
    "Count from 1 to 100.",
    "Tell me a story about a fox.",
    "Count from 1 to 80.",
    "Tell me a story about a cat.",
    "Tell me a story about an owl.",
    "Count from 3 to 90.",
    "Tell me a story about a bear.",
    "Tell me a story about the river.",
)

#: Prompt and options.
Case = tuple[str, dict[str, Any]]


def repeated(*, full: int, short: int) -> list[Any]:
    """So many rounds in `make chaos` (or `CHAOS_ROUNDS` of them), and few in `make test`."""
    full = int(os.environ.get("CHAOS_ROUNDS", full))
    return [
        pytest.param(short, id="short"),
        pytest.param(full, id="full", marks=pytest.mark.chaos),
    ]


def uncut(lives: Lives, cases: list[Case]) -> list[Follower]:
    """These runs without any fault, all at a time, to compare with."""
    routes = [route_of(index, *case, str(random.random())) for index, case in enumerate(cases)]
    followers = [Follower(lives.port, route) for route in routes]
    with ThreadPoolExecutor(len(followers)) as pool:
        list(pool.map(Follower.follow, followers))
    return followers


def num_chars(followers: list[Follower]) -> int:
    return sum(len(follower.text) for follower in followers)


def counted(lives: Lives, cases: list[Case], countdown: Countdown) -> list[Follower]:
    """Followers of new runs, on one route after the other, whose text is counted."""
    name, followers = str(random.random()), []
    for index, case in enumerate(cases):
        route = route_of(index, *case, f"{name}-{index}")
        followers.append(Follower(lives.port, route))
        followers[-1].events = CountedEvents(countdown, route.text_of)
    return followers
