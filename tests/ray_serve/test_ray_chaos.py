"""Replicas are killed under their streams, and readers leave: the same many times."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import psutil
import pytest
from cluster import UP_TIMEOUT_S, RayServer
from harness import eventually, stays
from ops import Countdown, Following, Tally, kill, spread
from rounds import GREEDY, PROMPTS, Case, counted, num_chars, repeated, uncut

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

NUM_REPLICAS = 2


def _has_all(server: RayServer, deployment: str, gone: psutil.Process) -> bool:
    """A new process is in the place of one that was killed."""
    pids = [process.pid for process in server.replicas(deployment)]
    return len(pids) == NUM_REPLICAS and gone.pid not in pids


@pytest.mark.parametrize("num_rounds", repeated(full=10, short=1))
def test_a_killed_replica_is_a_pause(
    server: RayServer, summary: Callable[..., None], num_rounds: int
) -> None:
    """Eight streams go on at the other replica: no cut, no gap, no repeat, the same text."""
    draw = random.Random(num_rounds)
    lives = SimpleNamespace(port=server.port)
    cases: list[Case] = [(prompt, GREEDY) for prompt in PROMPTS]
    alone = uncut(lives, cases)
    tally, stalls_s, losses = Tally(), [], 0
    for _ in range(num_rounds):
        victim = draw.choice(server.replicas("Engine-0"))
        moment = draw.randrange(1, num_chars(alone) * 9 // 10)
        countdown = Countdown(moment, kill(victim.pid), num_streams=len(cases))
        followers = counted(lives, cases, countdown)
        with ThreadPoolExecutor(len(followers)) as pool:
            following = Following(pool, followers)
            following.wait_for(countdown)
            following.wait()
        for follower, one in zip(followers, alone, strict=True):
            losses += follower.num_losses
            tally.add(follower, one.text)
        stalls_s.append(max(follower.stall_s for follower in followers))
        eventually(partial(_has_all, server, "Engine-0", victim), "another", UP_TIMEOUT_S)

    summary(f"rounds={num_rounds}", tally, f"cuts={losses}", spread("longest stall", stalls_s))
    tally.check()
    assert 0 == losses


@pytest.mark.parametrize("num_cancels", repeated(full=200, short=16))
def test_who_leaves_leaves_nothing_behind(
    server: RayServer, summary: Callable[..., None], num_cancels: int
) -> None:
    """Streams that are closed at any moment, sixteen at a time, all end on their replicas."""
    body = {"prompt": "Once upon a time", "max_tokens": 900, "ignore_eos": True}

    def leave(index: int) -> str:
        with server.stream(body) as frames:
            for _ in range(1 + index % 7):
                frame = next(frames)
        return str(frame.json["id"])

    with ThreadPoolExecutor(16) as pool:
        run_ids = list(pool.map(leave, range(num_cancels)))
    left_s = time.monotonic()
    # each gateway tells what it heard last of the replicas, so one answer is not enough
    for_s = 3.0
    eventually(lambda: stays(lambda: server.num_at_work() == 0, for_s), "all are gone")
    gone_s = time.monotonic() - left_s - for_s

    runs = [server.client.get(f"/v1/runs/{run_id}").json() for run_id in run_ids]
    assert "completed" not in {run["status"] for run in runs}  # none ended by itself
    summary(f"cancels={num_cancels}", f"survivors=0 after {gone_s:.2f} s")


def test_a_killed_gateway_is_a_reconnect(server: RayServer, summary: Callable[..., None]) -> None:
    """The other gateway takes its runs over; their readers come back and miss nothing."""
    lives = SimpleNamespace(port=server.port)
    cases: list[Case] = [(prompt, GREEDY) for prompt in PROMPTS]
    alone = uncut(lives, cases)
    victim = server.replicas("Gateway")[0]
    countdown = Countdown(num_chars(alone) // 4, kill(victim.pid), num_streams=len(cases))
    followers = counted(lives, cases, countdown)
    with ThreadPoolExecutor(len(followers)) as pool:
        following = Following(pool, followers)
        following.wait_for(countdown)
        following.wait()
    tally = Tally()
    for follower, one in zip(followers, alone, strict=True):
        tally.add(follower, one.text)
    stalls_s = [follower.stall_s for follower in followers]
    eventually(lambda: _has_all(server, "Gateway", victim), "another gateway", UP_TIMEOUT_S)

    summary(tally, spread("stall", stalls_s))
    tally.check()
