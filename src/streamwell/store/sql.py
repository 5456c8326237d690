"""`SqlStore`: the `Store` contract in SQLAlchemy Core, whatever the database.

Dialects, files and pragmas live in the subclasses. All writes go through one connection that is
held open, one transaction at a time; reads take connections from the engine's pool.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any, TypeVar

from sqlalchemy import (
    Connection,
    Row,
    Select,
    bindparam,
    delete,
    false,
    insert,
    select,
    true,
    update,
)
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from streamwell.core.errors import StoreFailed
from streamwell.core.types import EventKind, RunEvent, RunSpec
from streamwell.store.schema import (
    RUN_EVENTS,
    RUNS,
    event_from_row,
    event_to_row,
    run_to_row,
    spec_from_row,
)

T = TypeVar("T")

#: Runs deleted per transaction, so that a commit never waits long behind a deletion.
DELETE_BATCH_SIZE = 8

_INSERT_RUNS = insert(RUNS)
_END_RUN = update(RUNS).where(RUNS.c.id == bindparam("run_id")).values(ended=True)


class SqlStore(ABC):
    """A `Store` on a SQL database; lives in one event loop.

    `engine` is the store's own; its parameters are named, and its pool holds `max_readers`
    connections and one for the writer.
    """

    def __init__(self, engine: AsyncEngine, max_readers: int) -> None:
        self._engine = engine
        # The hot statement goes to the driver as it is: these rows need none of SQLAlchemy's work
        # on parameters, which would add half again to what a commit costs the event loop.
        self._insert_events = str(insert(RUN_EVENTS).compile(dialect=engine.dialect))
        self._writer: AsyncConnection | None = None
        self._write_turn = asyncio.Lock()
        self._max_readers = max_readers
        self._read_turns = asyncio.Semaphore(max_readers)

    @abstractmethod
    def _prepare(self) -> None:
        """Create or migrate the database; may block, and runs in a thread of its own."""

    async def open(self) -> None:
        """Create or migrate the database and connect to it; idempotent.

        Raises:
            StoreFailed: there is no usable database, or a newer Streamwell wrote it.
        """

        async def connect() -> None:
            if self._writer is None:
                with _store_errors():
                    await asyncio.to_thread(self._prepare)
                    self._writer = await self._engine.connect()

        await _uninterrupted(self._write_turn, connect)

    async def close(self) -> None:
        """Let reads and writes that came before end, then close every connection; idempotent."""

        async def disconnect() -> None:
            if self._writer is None:
                return
            writer, self._writer = self._writer, None
            async with AsyncExitStack() as readers:
                for _ in range(self._max_readers):
                    await readers.enter_async_context(self._read_turns)
                await writer.close()
                await self._engine.dispose()

        await _uninterrupted(self._write_turn, disconnect)

    async def commit(self, runs: Sequence[RunSpec], events: Sequence[RunEvent]) -> None:
        """Write new runs and new events in one transaction; all of it is kept, or nothing.

        Commits are carried out in the order of the calls. Cancelling one that waits for its turn
        withdraws it; cancelling one that has begun ends the wait, not the transaction.

        Raises:
            ValueError: a run id or an event's `(run_id, seq)` is there already or given twice, or
                an event's run is unknown.
            StoreFailed: the store is not open, or the database failed.
        """
        run_rows = [run_to_row(spec) for spec in runs]
        event_rows = [event_to_row(event) for event in events]
        ended_rows = [{"run_id": e.run_id} for e in events if e.kind is EventKind.END]

        def write(connection: Connection) -> None:
            # The order matters: an event's run must be there before it.
            if run_rows:
                connection.execute(_INSERT_RUNS, run_rows)
            if event_rows:
                connection.exec_driver_sql(self._insert_events, event_rows)
            if ended_rows:
                connection.execute(_END_RUN, ended_rows)

        try:
            await self._write(write)
        except IntegrityError as error:
            raise ValueError(f"A run or event is there already or orphaned: {error.orig}") from None

    async def run(self, run_id: str) -> RunSpec | None:
        """The run with this id; `StoreFailed` when not open."""
        rows = await self._read(select(RUNS.c.spec).where(RUNS.c.id == run_id))
        return spec_from_row(rows[0]) if rows else None

    async def events(self, run_id: str, after_seq: int = -1) -> list[RunEvent]:
        """The events of a run with `seq > after_seq`, in order; `StoreFailed` when not open."""
        rows = await self._read(
            select(RUN_EVENTS)
            .where(RUN_EVENTS.c.run_id == run_id, RUN_EVENTS.c.seq > after_seq)
            .order_by(RUN_EVENTS.c.seq)
        )
        return [event_from_row(row) for row in rows]

    async def unended_runs(self) -> list[RunSpec]:
        """Runs without an `END`, by `created_s`, then id; `StoreFailed` when not open."""
        rows = await self._read(
            select(RUNS.c.spec).where(RUNS.c.ended == false()).order_by(RUNS.c.created_s, RUNS.c.id)
        )
        return [spec_from_row(row) for row in rows]

    async def delete_ended_before(self, created_s: int) -> int:
        """Delete ended runs created before this time, a batch at a time; returns how many.

        Commits get their turn between batches. `StoreFailed` when not open.
        """
        old_ids = (
            select(RUNS.c.id)
            .where(RUNS.c.ended == true(), RUNS.c.created_s < created_s)
            .limit(DELETE_BATCH_SIZE)
        )
        # The events go with their runs: their foreign key cascades.
        statement = delete(RUNS).where(RUNS.c.id.in_(old_ids))
        num_deleted = 0
        while batch := await self._write(lambda connection: connection.execute(statement).rowcount):
            num_deleted += batch
        return num_deleted

    async def _read(self, statement: Select[Any]) -> Sequence[Row[Any]]:
        async def read() -> Sequence[Row[Any]]:
            self._check_open()
            with _store_errors():
                async with self._engine.connect() as connection:
                    rows: Sequence[Row[Any]] = (await connection.execute(statement)).all()
                    return rows

        return await _uninterrupted(self._read_turns, read)

    async def _write(self, work: Callable[[Connection], T]) -> T:
        def transaction(connection: Connection) -> T:
            with connection.begin():
                return work(connection)

        async def write() -> T:
            with _store_errors():
                return await self._check_open().run_sync(transaction)

        return await _uninterrupted(self._write_turn, write)

    def _check_open(self) -> AsyncConnection:
        if self._writer is None:
            raise StoreFailed("The store is not open.")
        return self._writer


async def _uninterrupted(
    turn: asyncio.Lock | asyncio.Semaphore, work: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    """Wait for `turn`, then hold it until `work` is done, even if the caller is cancelled then.

    A connection that others use next must not be left in the middle of a transaction.
    """
    await turn.acquire()
    task = asyncio.ensure_future(work())
    task.add_done_callback(lambda _: turn.release())
    return await asyncio.shield(task)


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise
    except SQLAlchemyError as error:
        raise StoreFailed(f"The database failed: {getattr(error, 'orig', error)}") from error
