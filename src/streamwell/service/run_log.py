"""The log of live runs: one group commit at a time, and readers wake only after it.

Everything that a reader sees is in the store already. While one commit is under way, what all
runs append gathers for the next, so an engine step costs one commit however many runs it served.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import structlog

from streamwell.core.errors import StoreFailed
from streamwell.core.ports import Store
from streamwell.core.types import EventKind, RunEvent, RunSpec

log = structlog.get_logger()


class LiveRun:
    """A run that has no committed end yet; its committed events, for any number of readers."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.events: list[RunEvent] = []
        self._failure: StoreFailed | None = None
        #: One for each reader that waits.
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def is_ended(self) -> bool:
        return bool(self.events) and self.events[-1].kind is EventKind.END

    def publish(self, event: RunEvent) -> None:
        self.events.append(event)
        self._wake()

    def fail(self, failure: StoreFailed) -> None:
        self._failure = failure
        self._wake()

    async def wait(self) -> None:
        """Wait for the next change.

        Raises:
            StoreFailed: this run's events could not be written.
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


class RunLog:
    """Writes and follows runs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._live: dict[str, LiveRun] = {}
        self._runs: list[RunSpec] = []
        self._events: list[RunEvent] = []
        self._has_work = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._is_closing = False

    async def open(self) -> None:
        await self._store.open()
        self._writer = asyncio.create_task(self._write(), name="run log writer")

    async def close(self) -> None:
        """Write what is pending, then close the store."""
        self._is_closing = True
        self._has_work.set()
        if self._writer is not None:
            await self._writer
        await self._store.close()

    def create(self, spec: RunSpec, events: list[RunEvent]) -> None:
        """Begin a run; its first events are shown once they are committed."""
        self._live[spec.run_id] = LiveRun(spec)
        self._runs.append(spec)
        self.append(*events)

    def append(self, *events: RunEvent) -> None:
        """Queue events for the next commit; they are shown once they are in the store.

        A run whose log broke takes no more: a log with a hole would be a lie.
        """
        self._events += (event for event in events if event.run_id in self._live)
        self._has_work.set()

    async def delete_ended_before(self, created_s: int) -> int:
        return await self._store.delete_ended_before(created_s)

    async def spec(self, run_id: str) -> RunSpec | None:
        live = self._live.get(run_id)
        return live.spec if live else await self._store.run(run_id)

    async def follow(
        self, run_id: str, after_seq: int = -1
    ) -> AsyncGenerator[list[RunEvent], None]:
        """Yield the events after `after_seq` as they are committed, ending after the `END`.

        A reader that is behind gets several at once.

        Raises:
            StoreFailed: the run's events could not be written.
        """
        live = self._live.get(run_id)
        if live is None:
            async for batch in self._read_ended(run_id, after_seq):
                yield batch
            return
        next_seq = after_seq + 1
        while True:
            if len(live.events) <= next_seq and not live.is_ended:
                await live.wait()
            batch = live.events[next_seq:]
            next_seq += len(batch)
            if batch:
                yield batch
            if live.is_ended and len(live.events) <= next_seq:
                return

    async def _read_ended(
        self, run_id: str, after_seq: int
    ) -> AsyncGenerator[list[RunEvent], None]:
        events = await self._store.events(run_id, after_seq)
        if events:
            yield events
        is_seen = not events and after_seq >= 0
        if not is_seen and (not events or events[-1].kind is not EventKind.END):
            raise StoreFailed  # its log broke before the end

    async def _write(self) -> None:
        while self._events or not self._is_closing:
            await self._has_work.wait()
            await self._commit()

    async def _commit(self) -> None:
        """Write all that is pending; if that fails, tell everybody who waits for it."""
        runs, self._runs = self._runs, []
        events, self._events = self._events, []
        self._has_work.clear()
        try:
            await self._store.commit(runs, events)
        except Exception as error:  # noqa: BLE001 - the rim of the task; a full disk is one line
            log.warning("run log cannot be written", num_events=len(events), error=str(error))
            self._break({event.run_id for event in events})
            return
        for event in events:
            self._live[event.run_id].publish(event)
            if event.kind is EventKind.END:
                del self._live[event.run_id]

    def _break(self, run_ids: set[str]) -> None:
        """Give up runs whose events are not in the store, with what they appended meanwhile."""
        self._events = [event for event in self._events if event.run_id not in run_ids]
        for run_id in run_ids:
            self._live.pop(run_id).fail(StoreFailed())
