"""What the log holds in memory of a run that has no committed end yet."""

from __future__ import annotations

import asyncio

from streamwell.core.errors import StreamwellError
from streamwell.core.types import RunEvent, RunSpec, end_of


class LiveRun:
    """A run that has no committed end yet; its committed events, for any number of readers."""

    def __init__(self, spec: RunSpec, events: list[RunEvent] | None = None) -> None:
        self.spec = spec
        self.events = events or []
        self._failure: StreamwellError | None = None
        #: One for each reader that waits.
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def is_ended(self) -> bool:
        return end_of(self.events) is not None

    def publish(self, event: RunEvent) -> None:
        self.events.append(event)
        self._wake()

    def fail(self, failure: StreamwellError) -> None:
        self._failure = failure
        self._wake()

    async def wait(self) -> None:
        """Wait for the next change.

        Raises:
            StoreFailed: this run's events could not be written.
            ShuttingDown: it goes on when a server is up again.
        """
        if self._failure is None:
            # Not an `asyncio.Event`: it would cost twice as much, for every reader and step.
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        if self._failure is not None:
            raise self._failure

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():  # its reader may have left
                waiter.set_result(None)
