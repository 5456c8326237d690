"""Runs of several servers that share a store and reach each other: whoever is asked can answer.

A run that nobody reads where it lives passes to the server that is asked for it. One that has
readers stays with them: only its end can be asked for from elsewhere.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from streamwell.core.errors import RunElsewhere
from streamwell.core.types import RunSpec
from streamwell.service.reader import Reader
from streamwell.service.runs import RunService


class Others(Protocol):
    """The other servers; calls that reach none of them are lost without a word."""

    async def let_go(self, run_id: str) -> bool:
        """Ask them for `SharedRuns.let_go`; whether one did."""
        ...

    async def end(self, run_id: str) -> None:
        """Ask them for `SharedRuns.end`."""
        ...


class SharedRuns(RunService):
    """All live runs of this server, and a way to those of others."""

    others: Others

    async def attach(self, run_id: str, tenant: str, after_seq: int = -1) -> Reader:
        try:
            return await super().attach(run_id, tenant, after_seq)
        except RunElsewhere:
            if not await self.others.let_go(run_id):
                raise
        await self.recover()
        return await super().attach(run_id, tenant, after_seq)

    async def cancel(self, run_id: str, tenant: str) -> RunSpec:
        try:
            return await super().cancel(run_id, tenant)
        except RunElsewhere:
            await self.others.end(run_id)
        return await super().cancel(run_id, tenant)

    async def let_go(self, run_id: str) -> bool:
        """Give a run that nobody reads to whoever adopts it next; whether that was so.

        Runs in the background stay: nobody has to come back for them.
        """
        run = self._live.get(run_id)
        if run is None or not run.is_alone:
            return False
        run.stop_grace()
        if run.task is not None:
            run.is_pausing = True
            run.task.cancel()
            await asyncio.wait([run.task])
            await asyncio.sleep(0)  # let the task's callbacks have their turn
        if self._live.get(run_id) is not run or not run.is_alone or run.task is not None:
            return False  # it has ended, or somebody came back
        del self._live[run_id]
        await self.log.release(run_id)
        return True

    async def end(self, run_id: str) -> None:
        """End a run if it lives here; returns when its end is written."""
        if (run := self._live.get(run_id)) is not None:
            self._cancel(run)
            await self.log.wait_for_end(run_id)
