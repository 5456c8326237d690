"""Streams that are cut at any byte, inside events and inside characters, and taken up again."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from client import Follower, PlannedCut, is_inside_a_character
from ops import Lives, Tally, percentiles
from rounds import PROMPTS, repeated
from routes import By, Completions, TextStream
from sockets import SocketFollower, SocketRoute

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

NUM_AT_A_TIME, MAX_CUTS = 8, 5
#: Ids of é and of the bytes of other characters: most of the text takes several bytes a letter.
ACCENTS = {str(id_): 14 for id_ in (395, 130, 123, 161, 227, 108, 165, 248, 101, 849, 102, 235)}
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
#: The first two have text as it comes, of few bytes a letter.
NUM_ROADS, PLAIN_ROADS = 7, (0, 1)


def _options(draw: random.Random) -> dict[str, Any]:
    return {
        "max_tokens": draw.randrange(40, 120),
        "temperature": 1.5,
        "seed": draw.randrange(1 << 31),
        "ignore_eos": True,
    }


def _follower(port: int, index: int, prompt: str, options: dict[str, Any]) -> Follower:
    """A follower of a new run, on one of seven roads."""
    key = f"cuts-{random.random()}"
    query = {"prompt": prompt, **options}
    by: By = "query" if index % 2 else "header"
    kind = index % NUM_ROADS
    if kind in PLAIN_ROADS:
        return Follower(port, TextStream(query, "query" if kind else "header"))
    accents = {"logit_bias": ACCENTS}
    if kind == NUM_ROADS - 1:
        return SocketFollower(port, SocketRoute(query | accents, key))
    body = options | accents | {"stream_options": {"include_usage": True}}
    if kind in (2, 3):
        messages = [{"role": "user", "content": prompt}]
        return Follower(port, Completions(CHAT, body | {"messages": messages}, key, by))
    return Follower(port, Completions(TEXT, body | {"prompt": prompt}, key, by))


def _plan(draw: random.Random, num_bytes: int, share: float) -> list[PlannedCut]:
    """Cuts at bytes of a stream of about this length, a share of them inside characters."""
    places = sorted(draw.sample(range(1, num_bytes), draw.randrange(1, MAX_CUTS + 1)))
    lengths = [later - earlier for earlier, later in zip([0, *places], places, strict=False)]
    return [
        PlannedCut(length, draw.choice(["fin", "rst"]), in_character=draw.random() < share)
        for length in lengths
    ]


@pytest.mark.parametrize("num_streams", repeated(full=200, short=21))
def test_cut_anywhere(
    lives: Lives, draw: random.Random, summary: Callable[..., None], num_streams: int
) -> None:
    """1 to 5 cuts each, on every road: frame by frame the uncut stream, text as of another run."""
    tally, followers = Tally(), []

    def carry_out(index: int, chance: random.Random) -> None:
        asked = (chance.choice(PROMPTS), _options(chance))
        follower = _follower(lives.port, index, *asked)
        share = 0.0 if index % NUM_ROADS in PLAIN_ROADS else 0.5
        follower.plan(_plan(chance, 60 * asked[1]["max_tokens"], share))
        # on the same road: where a thought goes, which chance may bring, is not the same on all
        uncut = _follower(lives.port, index, *asked).follow()
        tally.add(follower.follow(), uncut.text)
        followers.append(follower)

    chances = [random.Random(draw.random()) for _ in range(num_streams)]
    with ThreadPoolExecutor(NUM_AT_A_TIME) as pool:
        list(pool.map(carry_out, range(num_streams), chances))

    tails = [tail for follower in followers for tail in follower.cut_tails]
    first_bytes_s = [s for follower in followers for s in follower.first_bytes_s]
    num_inside = sum(map(is_inside_a_character, tails))
    summary(
        tally,
        f"cuts={len(tails)}",
        f"inside an event={sum(map(bool, tails))}",
        f"inside a character={num_inside}",
        percentiles("resume to first byte", first_bytes_s),
    )
    tally.check()
    assert len(tails) >= num_streams / 2
    assert num_inside
