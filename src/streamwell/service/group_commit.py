"""Group commit: while one commit is under way, what comes gathers for the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from streamwell.core.conversation import NewItems
from streamwell.core.types import RunEvent, RunSpec


@dataclass(slots=True)
class Batch:
    """What one commit writes."""

    runs: list[RunSpec] = field(default_factory=list)
    events: list[RunEvent] = field(default_factory=list)
    items: list[NewItems] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.runs or self.events)


class GroupCommit:
    """A task that saves one batch at a time.

    `save` raises nothing: what it could not write is its own to tell.
    """

    def __init__(self, save: Callable[[Batch], Awaitable[None]]) -> None:
        self._save = save
        #: For the next commit.
        self.batch = Batch()
        #: Those who wait for it.
        self._flushes: list[asyncio.Future[None]] = []
        self._has_work = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._is_closing = False

    def start(self) -> None:
        """Needs a running event loop."""
        self._writer = asyncio.create_task(self._write(), name="run log writer")

    async def close(self) -> None:
        """Save what there is; nothing may come afterwards."""
        self._is_closing = True
        self._has_work.set()
        if self._writer is not None:
            await self._writer

    def wake(self) -> None:
        """Something has come into the batch."""
        self._has_work.set()

    async def flush(self) -> None:
        """Return once all that is in the batch has been saved."""
        flushed = asyncio.get_running_loop().create_future()
        self._flushes.append(flushed)
        self._has_work.set()
        await flushed

    def forget(self, run_ids: Collection[str]) -> None:
        """Leave out events of these runs that have not been saved."""
        self.batch.events = [event for event in self.batch.events if event.run_id not in run_ids]

    def forget_all(self) -> None:
        self.batch = Batch()

    async def _write(self) -> None:
        while self.batch or not self._is_closing:
            await self._has_work.wait()
            batch, self.batch = self.batch, Batch()
            flushes, self._flushes = self._flushes, []
            self._has_work.clear()
            if batch:
                await self._save(batch)
            for flushed in flushes:
                if not flushed.done():  # whoever waits for it may have been cancelled
                    flushed.set_result(None)
