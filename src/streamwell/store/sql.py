"""`SqlStore`: the `Store` contract in SQLAlchemy Core, whatever the database.

Dialects, files and pragmas live in the subclasses. One thread writes, through one connection that
is held open, and so in the order of the calls; a few others read (docs/decisions/0013).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import (
    Connection,
    Engine,
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


class _Threads:
    """The threads of an open store; each job ends before the next of its thread begins."""

    def __init__(self, num_readers: int) -> None:
        self.writer = ThreadPoolExecutor(1, "store writer")
        self.readers = ThreadPoolExecutor(num_readers, "store reader")

    def end(self) -> None:
        """Carry out what is queued, then end; blocks."""
        self.readers.shutdown()
        self.writer.shutdown()


class SqlStore(ABC):
    """A `Store` on a SQL database; lives in one event loop.

    `engine` is the store's own, for any thread; its parameters are positional, and its pool holds
    `num_readers` connections and one for the writer.
    """

    def __init__(self, engine: Engine, num_readers: int) -> None:
        self._engine = engine
        # The hot statement goes to the driver as it is: its rows need none of SQLAlchemy's work on
        # parameters.
        self._insert_events = str(insert(RUN_EVENTS).compile(dialect=engine.dialect))
        self._num_readers = num_readers
        self._threads: _Threads | None = None
        #: Only the writer's thread touches it.
        self._writer: Connection | None = None

    @abstractmethod
    def _prepare(self) -> None:
        """Create or migrate the database; may block, and runs in the writer's thread."""

    async def open(self) -> None:
        """Create or migrate the database and connect to it; idempotent.

        Raises:
            StoreFailed: there is no usable database, or a newer Streamwell wrote it.
        """
        threads = self._threads = self._threads or _Threads(self._num_readers)
        try:
            await _run(threads.writer, self._connect)
        except StoreFailed:
            self._threads = None
            threads.end()
            raise

    async def close(self) -> None:
        """Let reads and writes that came before end, then close every connection; idempotent."""
        if self._threads is None:
            return
        threads, self._threads = self._threads, None
        threads.writer.submit(self._disconnect)
        await asyncio.shield(asyncio.to_thread(threads.end))
        self._engine.dispose()

    async def commit(self, runs: Sequence[RunSpec], events: Sequence[RunEvent]) -> None:
        """Write new runs and new events in one transaction; all of it is kept, or nothing.

        Commits are carried out in the order of the calls. Cancelling one that waits for its turn
        withdraws it; cancelling one that has begun ends the wait, not the transaction.

        Raises:
            ValueError: a run id or an event's `(run_id, seq)` is there already or given twice, or
                an event's run is unknown.
            StoreFailed: the store is not open, or the database failed.
        """

        def write(connection: Connection) -> None:
            # The order matters: an event's run must be there before it.
            if runs:
                connection.execute(_INSERT_RUNS, [run_to_row(spec) for spec in runs])
            if events:
                rows = [event_to_row(event) for event in events]
                connection.exec_driver_sql(self._insert_events, rows)
            if ended := [{"run_id": e.run_id} for e in events if e.kind is EventKind.END]:
                connection.execute(_END_RUN, ended)

        try:
            await self._write(write)
        except IntegrityError as error:
            raise ValueError(f"A run or event is there already or orphaned: {error.orig}") from None

    async def run(self, run_id: str) -> RunSpec | None:
        """The run with this id; `StoreFailed` when not open."""
        specs = await self._read(spec_from_row, select(RUNS.c.spec).where(RUNS.c.id == run_id))
        return specs[0] if specs else None

    async def events(self, run_id: str, after_seq: int = -1) -> list[RunEvent]:
        """The events of a run with `seq > after_seq`, in order; `StoreFailed` when not open."""
        return await self._read(
            event_from_row,
            select(RUN_EVENTS)
            .where(RUN_EVENTS.c.run_id == run_id, RUN_EVENTS.c.seq > after_seq)
            .order_by(RUN_EVENTS.c.seq),
        )

    async def unended_runs(self) -> list[RunSpec]:
        """Runs without an `END`, by `created_s`, then id; `StoreFailed` when not open."""
        unended = select(RUNS.c.spec).where(RUNS.c.ended == false())
        return await self._read(spec_from_row, unended.order_by(RUNS.c.created_s, RUNS.c.id))

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

    async def _read(self, decode: Callable[[Sequence[Any]], T], statement: Select[Any]) -> list[T]:
        def read() -> list[T]:
            with _store_errors(), self._engine.connect() as connection:
                return [decode(row) for row in connection.execute(statement)]

        return await _run(self._open_threads().readers, read)

    async def _write(self, work: Callable[[Connection], T]) -> T:
        def transaction() -> T:
            if self._writer is None:
                raise StoreFailed("The store is not open.")
            with _store_errors(), self._writer.begin():
                return work(self._writer)

        return await _run(self._open_threads().writer, transaction)

    def _open_threads(self) -> _Threads:
        if self._threads is None:
            raise StoreFailed("The store is not open.")
        return self._threads

    def _connect(self) -> None:
        if self._writer is None:
            with _store_errors():
                self._prepare()
                self._writer = self._engine.connect()

    def _disconnect(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


async def _run(thread: ThreadPoolExecutor, job: Callable[[], T]) -> T:
    """The job's answer. Cancelling withdraws a job that has not begun, and lets others end."""
    return await asyncio.get_running_loop().run_in_executor(thread, job)


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise
    except SQLAlchemyError as error:
        raise StoreFailed(f"The database failed: {getattr(error, 'orig', error)}") from error
