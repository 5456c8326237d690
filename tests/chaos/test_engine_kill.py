"""The engine process is killed or frozen under its clients, who see a pause and nothing else."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from harness import eventually
from ops import Countdown, Following, Lives, Tally, kill, spread
from rounds import GREEDY, PROMPTS, Case, counted, num_chars, repeated, uncut

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def _strike(
    lives: Lives, draw: random.Random, number: int, num_rounds: int
) -> tuple[Tally, list[float], list[float]]:
    """Send a signal to the engine, once a round; returns stalls and restarts beside the tally."""
    cases: list[Case] = [(prompt, GREEDY) for prompt in PROMPTS]
    alone = uncut(lives, cases)
    tally, stalls_s, restarts_s = Tally(), [], []
    for _ in range(num_rounds):
        engine = lives.engine()
        moment = draw.randrange(1, num_chars(alone) * 9 // 10)
        countdown = Countdown(moment, kill(engine.pid, number), num_streams=len(cases))
        followers = counted(lives, cases, countdown)
        with ThreadPoolExecutor(len(followers)) as pool:
            following = Following(pool, followers)
            following.wait_for(countdown)
            eventually(partial(lives.has_new_engine, engine.pid), "another engine is up")
            restarts_s.append(lives.engine_ready_s() - countdown.done_s)
            following.wait()
        for follower, one in zip(followers, alone, strict=True):
            assert (1, 0) == (follower.num_connections, follower.num_losses)
            tally.add(follower, one.text)
        stalls_s.append(max(follower.stall_s for follower in followers))
    return tally, stalls_s, restarts_s


@pytest.mark.parametrize("num_rounds", repeated(full=50, short=2))
def test_a_killed_engine_is_a_pause(
    lives: Lives, draw: random.Random, summary: Callable[..., None], num_rounds: int
) -> None:
    """No client sees an error or a closed connection; all runs are as if nothing had been."""
    tally, stalls_s, restarts_s = _strike(lives, draw, signal.SIGKILL, num_rounds)

    figures = spread("longest stall", stalls_s), spread("kill to engine ready", restarts_s)
    summary(f"rounds={num_rounds}", tally, *figures)
    tally.check()


@pytest.mark.parametrize("num_rounds", repeated(full=10, short=1))
def test_a_frozen_engine_is_a_pause(
    lives: Lives, draw: random.Random, summary: Callable[..., None], num_rounds: int
) -> None:
    """It is noticed, killed and replaced; its clients wait longer, and see nothing else."""
    tally, stalls_s, restarts_s = _strike(lives, draw, signal.SIGSTOP, num_rounds)

    figures = spread("longest stall", stalls_s), spread("stop to engine ready", restarts_s)
    summary(f"rounds={num_rounds}", tally, *figures)
    tally.check()
