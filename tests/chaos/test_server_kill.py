"""The server is killed under its clients; its successor goes on with every run."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from client import Follower
from harness import eventually
from ops import Countdown, Following, Lives, Revival, Tally, is_gone, kill, spread
from rounds import GREEDY, PROMPTS, SAMPLED, Case, counted, num_chars, repeated, uncut

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


class Rounds:
    """Rounds of streams with a kill in each, and what they gave."""

    def __init__(self, lives: Lives, draw: random.Random) -> None:
        self.tally = Tally()
        self._lives = lives
        self._draw = draw
        self._firsts_s: list[float] = []
        self._lasts_s: list[float] = []
        self._loads_s: list[float] = []

    def carry_out(self, cases: list[Case], alone: list[Follower]) -> None:
        """These streams, and a kill at some token of theirs; `alone` are they without."""
        lives = self._lives
        moment = self._draw.randrange(1, num_chars(alone) * 9 // 10)
        engine = lives.engine()
        countdown = Countdown(moment, kill(lives.server.pid))
        followers = counted(lives, cases, countdown)
        with ThreadPoolExecutor(len(followers)) as pool:
            following = Following(pool, followers)
            following.wait_for(countdown)
            revival = lives.revive()
            following.wait()
        self._note(revival, followers)
        for follower, one in zip(followers, alone, strict=True):
            self.tally.add(follower, one.text)
        eventually(lambda: is_gone(engine), "the engine of the killed server is gone")

    def _note(self, revival: Revival, followers: list[Follower]) -> None:
        """Each client that was cut goes on with an event; the first and the last of these count.

        On a fast machine all may have had everything before the kill: such a round has no figures.
        """
        arrivals_s = [[s for s in f.arrivals_s if s > revival.open_s] for f in followers]
        firsts_s = [min(later_s) - revival.open_s for later_s in arrivals_s if later_s]
        if not firsts_s:
            return
        self._firsts_s.append(min(firsts_s))
        self._lasts_s.append(max(firsts_s))
        self._loads_s.append(revival.load_s)

    def figures(self) -> tuple[str, ...]:
        pairs = zip(self._lasts_s, self._loads_s, strict=True)
        return (
            str(self.tally),
            spread("port open to model loaded", self._loads_s),
            spread("to the first client's next event", self._firsts_s),
            spread("to the last client's", self._lasts_s),
            spread("loaded to the last client's", [last_s - load_s for last_s, load_s in pairs]),
        )


@pytest.mark.parametrize("num_rounds", repeated(full=50, short=2))
def test_kill_under_greedy_streams(
    lives: Lives, draw: random.Random, summary: Callable[..., None], num_rounds: int
) -> None:
    """`kill -9` at any token under 8 streams: every run reaches its end as if nothing had been."""
    rounds = Rounds(lives, draw)
    cases: list[Case] = [(prompt, GREEDY) for prompt in PROMPTS]
    alone = uncut(lives, cases)
    for _ in range(num_rounds):
        rounds.carry_out(cases, alone)

    summary(f"rounds={num_rounds}", *rounds.figures())
    rounds.tally.check()
    assert "Traceback" not in lives.log()


@pytest.mark.parametrize("num_rounds", repeated(full=13, short=1))
def test_kill_under_sampled_streams(
    lives: Lives, draw: random.Random, summary: Callable[..., None], num_rounds: int
) -> None:
    """With a seed, sampling goes on after a kill just as it would have gone on without."""
    rounds = Rounds(lives, draw)
    for _ in range(num_rounds):
        seeds = [draw.randrange(1 << 31) for _ in PROMPTS]
        options = [SAMPLED | {"seed": seed} for seed in seeds]
        cases: list[Case] = list(zip(PROMPTS, options, strict=True))
        rounds.carry_out(cases, uncut(lives, cases))

    summary(f"rounds={num_rounds}", *rounds.figures())
    rounds.tally.check()
