"""How long to wait before a dead engine is started again."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds before the second start after a death; doubles up to the maximum.
MIN_DELAY_S, MAX_DELAY_S = 1.0, 8.0
#: An engine was sound if it was ready for so many seconds, or took so many steps.
SOUND_S, SOUND_STEPS = 60.0, 100


class Backoff:
    """The first restart is at once; each further one waits longer, until an engine was sound."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ready_at_s: float | None = None
        self._next_delay_s = 0.0

    def note_ready(self) -> None:
        """An engine takes requests from now on."""
        self._ready_at_s = self._clock()

    def after_death(self, num_steps: int) -> float:
        """Seconds to wait, now that an engine has ended after so many steps."""
        ready_s = 0.0 if self._ready_at_s is None else self._clock() - self._ready_at_s
        self._ready_at_s = None
        if ready_s >= SOUND_S or num_steps >= SOUND_STEPS:
            self._next_delay_s = 0.0
        delay_s = self._next_delay_s
        self._next_delay_s = min(max(2 * delay_s, MIN_DELAY_S), MAX_DELAY_S)
        return delay_s
