"""One reader of a run is very slow: it gets every event once, and the others do not notice."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from client import Connection, Follower, Frames
from harness import eventually
from ops import Lives
from rounds import repeated
from routes import Completions, Event

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BYTES_PER_S, PIECE_BYTES = 200, 20
#: More frames than the buffers between server and client hold.
BODY = {"prompt": ["Once upon a time"] * 8, "max_tokens": 300, "ignore_eos": True, "temperature": 0}


def _is_due(at_s: float) -> bool:
    return time.monotonic() >= at_s


def _dawdle(port: int, follower: Follower, for_s: float) -> list[Event]:
    """Read the same run at 200 B/s for a while, and then the rest."""
    eventually(lambda: follower.events, "the run has begun")
    frames, events = Frames(), []
    again = follower.route.again(follower.run_id)
    with Connection(port, again, receive_buffer=4096) as connection:
        assert 200 == connection.status()
        begun_s = next_s = time.monotonic()
        while next_s < begun_s + for_s:
            for payload in connection.payloads(PIECE_BYTES):
                events += frames.push(payload)
            next_s += PIECE_BYTES / BYTES_PER_S
            eventually(partial(_is_due, next_s), "it is time to read on")
        for payload in connection.payloads():
            events += frames.push(payload)
    return events


@pytest.mark.parametrize("for_s", repeated(full=60, short=2))
def test_a_slow_reader_misses_nothing_and_holds_up_nobody(
    lives: Lives, summary: Callable[..., None], for_s: float
) -> None:
    """200 B/s for a while, then all the rest: the same events as a fast reader of the same run."""
    alone, fast, neighbour = (
        Follower(lives.port, Completions("/v1/completions", BODY, f"slow-{random.random()}"))
        for _ in range(3)
    )
    alone.follow()
    begun_s = time.monotonic()
    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(follower.follow) for follower in (fast, neighbour)]
        slow = pool.submit(_dawdle, lives.port, fast, for_s)
        for other in others:
            other.result()
        fast_s = time.monotonic() - begun_s
        events = slow.result()

    assert fast.is_ended
    assert fast.events == events
    assert 0 == fast.num_breaks
    assert alone.text_by_choice() == fast.text_by_choice() == neighbour.text_by_choice()
    stall_s = max(fast.stall_s, neighbour.stall_s)
    summary(
        f"events={len(events)}",
        f"fast readers done after {fast_s:.1f} s",
        f"their longest stall {stall_s:.2f} s (without the slow one: {alone.stall_s:.2f} s)",
    )
