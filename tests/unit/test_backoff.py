"""When a dead engine is started again: at once, then later and later, until one was sound."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from streamwell.engine.backoff import SOUND_S, SOUND_STEPS, Backoff


@dataclass
class Clock:
    """Time that passes only when it is told to."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def die(backoff: Backoff, clock: Clock, *, ready_s: float | None, num_steps: int = 0) -> float:
    """One life of an engine: the wait after it."""
    if ready_s is not None:
        backoff.note_ready()
        clock.now_s += ready_s
    return backoff.after_death(num_steps)


@pytest.mark.parametrize("ready_s", [None, 0.0, SOUND_S - 1], ids=["loading", "at once", "soon"])
def test_waits_double_up_to_a_maximum(ready_s: float | None) -> None:
    """An engine that dies while loading or soon after is started ever more rarely."""
    clock = Clock()
    backoff = Backoff(clock)

    waits = [die(backoff, clock, ready_s=ready_s) for _ in range(9)]

    assert [0, 1, 2, 4, 8, 8, 8, 8, 8] == waits


@pytest.mark.parametrize(("ready_s", "num_steps"), [(SOUND_S, 0), (0.0, SOUND_STEPS)])
def test_a_sound_engine_is_restarted_at_once(ready_s: float, num_steps: int) -> None:
    """A minute of readiness, or enough steps, make what was before forgotten."""
    clock = Clock()
    backoff = Backoff(clock)
    for _ in range(5):
        die(backoff, clock, ready_s=0.0)

    waits = [
        die(backoff, clock, ready_s=ready_s, num_steps=num_steps),
        die(backoff, clock, ready_s=0.0),
    ]

    assert [0, 1] == waits


def test_time_spent_loading_is_no_time_of_readiness() -> None:
    """An hour between two deaths makes no engine sound that was never ready."""
    clock = Clock()
    backoff = Backoff(clock)
    die(backoff, clock, ready_s=0.0)
    clock.now_s += 3600

    assert 1 == die(backoff, clock, ready_s=None)
