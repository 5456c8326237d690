"""The two seams of the house: `Engine` and `Store`. Each has at least two real implementations."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from streamwell.core.types import (
    EngineInfo,
    EngineStats,
    EngineStatus,
    GenerateRequest,
    RunEvent,
    RunSpec,
    TokenDelta,
)


class Engine(Protocol):
    """Turns prompt ids into token ids."""

    def start(self) -> None:
        """Begin to load, in the background; needs a running event loop."""
        ...

    async def stop(self) -> None:
        """End every live request with `EngineDied` and free all that the engine holds."""
        ...

    async def ready(self) -> EngineInfo:
        """Wait until the model is loaded.

        Raises:
            LoadError: it cannot be loaded.
        """
        ...

    def status(self) -> EngineStatus: ...

    def stats(self) -> EngineStats: ...

    def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenDelta, None]:
        """Yield the tokens of one request as they come.

        The generator is the lease: closing it aborts the request within one engine step and frees
        its KV blocks. Exactly one delta, the last, carries a finish reason; tokens that came
        while the consumer was busy arrive merged in one delta.

        Raises:
            EngineDied: the engine went away first, or is not up.
            SequenceFailed: this request alone cannot go on.
        """
        ...


class Store(Protocol):
    """Keeps runs and their events. One process writes, any number of readers.

    Every method raises `StoreFailed` when the store is not open, or its database failed.
    """

    async def open(self) -> None:
        """Create or migrate what is needed; idempotent."""
        ...

    async def close(self) -> None:
        """Carry out the calls that have begun, then let go; idempotent."""
        ...

    async def commit(self, runs: Sequence[RunSpec], events: Sequence[RunEvent]) -> None:
        """Write new runs and new events in one transaction; all of it is kept, or nothing.

        An `END` event also marks its run as ended. A cancelled call is either carried out or
        leaves nothing.

        Raises:
            ValueError: a run id or an event's `(run_id, seq)` is there already or given twice, or
                an event's run is unknown.
        """
        ...

    async def run(self, run_id: str) -> RunSpec | None: ...

    async def events(self, run_id: str, after_seq: int = -1) -> list[RunEvent]:
        """The events of a run with `seq > after_seq`, in order; empty for an unknown run."""
        ...

    async def unended_runs(self) -> list[RunSpec]:
        """Runs that have no `END` event yet, by `created_s`, then id."""
        ...

    async def delete_ended_before(self, created_s: int) -> int:
        """Delete ended runs created before this time, with their events; returns how many.

        Not one transaction: commits get their turn in between.
        """
        ...
