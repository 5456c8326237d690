"""What tests of SQLite files share: small values, and a look at the writer's connection."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from streamwell.core.types import EventKind, RunEvent, RunKind, RunSpec, SamplingParams
from streamwell.store.database import driver_row
from streamwell.store.sqlite import SqliteStore

T = TypeVar("T")


class Run(Protocol):
    """Runs a coroutine to its end on the test's one event loop."""

    def __call__(self, coroutine: Coroutine[Any, Any, T], /) -> T: ...


def a_run(run_id: str) -> RunSpec:
    return RunSpec(
        run_id=run_id,
        kind=RunKind.CHAT,
        tenant="",
        model="brooklet",
        created_s=1_000,
        prompts=((1, 2, 3),),
        num_choices=1,
        sampling=SamplingParams(max_tokens=16),
        stop=(),
    )


def a_delta(run_id: str, seq: int, text: str = " word") -> RunEvent:
    return RunEvent(run_id=run_id, seq=seq, kind=EventKind.DELTA, token_ids=(seq,), text=text)


async def ask(store: SqliteStore, statement: str) -> Any:  # noqa: ANN401 - whatever SQLite says
    """What the writer connection answers, outside of a transaction."""

    def execute() -> object:
        assert store._writer is not None
        row = driver_row(store._writer, statement)
        return row and row[0]

    return await asyncio.get_running_loop().run_in_executor(store._open_threads().writer, execute)
