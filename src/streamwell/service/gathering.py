"""Lets choices of one model begin together, for a first step that is fuller.

Who comes waits until the choices that run and those that wait fill the batch, or until the one
that came first has waited long enough. All that wait begin then; they end each by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gathering:
    """The choices of one model, from before they begin until they end."""

    def __init__(self, max_num_seqs: int = 1, timeout_s: float = 0.0) -> None:
        """With a timeout of 0 nobody waits."""
        self._max_num_seqs = max_num_seqs
        self._timeout_s = timeout_s
        self._num_here = 0
        self._num_waiting = 0
        self._begun = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def place(self, *, at_once: bool = False) -> AsyncIterator[None]:
        """Wait for the others, unless `at_once`; to be left when the choice has ended."""
        self._num_here += 1
        try:
            if self._timeout_s and not at_once:
                await self._wait()
            yield
        finally:
            self._num_here -= 1

    async def _wait(self) -> None:
        if self._num_here >= self._max_num_seqs:
            self._begin()
            return
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._begin)
        begun = self._begun
        self._num_waiting += 1
        try:
            await begun.wait()
        finally:
            self._num_waiting -= 1
            if not self._num_waiting and not begun.is_set():  # all of them have left
                self._stop_timer()

    def _begin(self) -> None:
        """In one turn of the event loop, so that the engine hears of all of them before a step."""
        self._stop_timer()
        self._begun.set()
        self._begun = asyncio.Event()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
