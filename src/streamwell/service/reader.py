"""Who follows a run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from streamwell.core.types import RunEvent, RunSpec
from streamwell.service.run import Run
from streamwell.service.run_log import RunLog


class Leave(Protocol):
    """Is told that a reader is gone, and whether it may come back."""

    def __call__(self, run: Run, *, resumable: bool) -> None: ...


class Reader:
    """One follower of a run, from an event on; close it exactly when it leaves.

    Closing twice is harmless.
    """

    def __init__(
        self,
        run_log: RunLog,
        spec: RunSpec,
        run: Run | None,
        leave: Leave,
        after_seq: int = -1,
    ) -> None:
        """`run` is `None` for one that has ended."""
        self.spec = spec
        self._log = run_log
        self._run = run
        self._leave = leave
        self._after_seq = after_seq
        if run is not None:
            run.num_readers += 1

    @property
    def is_live(self) -> bool:
        """The run has not ended, or had not when the reader came."""
        return self._run is not None

    def events(self) -> AsyncGenerator[list[RunEvent], None]:
        """The run's events as they are committed; see `RunLog.follow`."""
        return self._log.follow(self.spec.run_id, self._after_seq)

    async def wait_for_start(self) -> None:
        """Return once the run is in the store; `StoreFailed` if it could not be written."""
        async with aclosing(self._log.follow(self.spec.run_id)) as batches:
            async for _ in batches:
                return

    def close(self, *, resumable: bool = True) -> None:
        """Leave; a reader that cannot come back leaves for good."""
        if self._run is not None:
            run, self._run = self._run, None
            self._leave(run, resumable=resumable)
