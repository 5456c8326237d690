"""`SqlDatabase`: threads, connections, transactions and the lease of a store on a SQL database.

One thread writes, through one connection that is held open, and so in the order of the calls; a
few others read (docs/decisions/0013). Dialects, files and pragmas live in the subclasses.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Select, bindparam, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from streamwell.core.errors import LeaseLost, StoreFailed
from streamwell.core.types import RunEvent
from streamwell.store.leases import Proof, take_lease
from streamwell.store.rows import Row
from streamwell.store.schema import LEASES

T = TypeVar("T")

_NOT_OPEN = "The store is not open."

# The lock on the row makes an adoption wait for the transaction, or the transaction see it.
_SELECT_REVOKED = (
    select(LEASES.c.revoked).where(LEASES.c.id == bindparam("id")).with_for_update(read=True)
)


class _Threads:
    """The threads of an open store; each job ends before the next of its thread begins."""

    def __init__(self, num_readers: int) -> None:
        self.writer = ThreadPoolExecutor(1, "store writer")
        self.readers = ThreadPoolExecutor(num_readers, "store reader")

    def end(self) -> None:
        """Carry out what is queued, then end; blocks."""
        self.readers.shutdown()
        self.writer.shutdown()


class SqlDatabase(ABC):
    """An open or closed SQL database; lives in one event loop.

    `engine` is its own, for any thread; its parameters are positional, and its pool holds
    `num_readers` connections and one for the writer.
    """

    is_durable = True

    def __init__(
        self, engine: Engine, proof: Proof, num_readers: int, clock: Callable[[], float]
    ) -> None:
        self._engine = engine
        self._proof = proof
        self._num_readers = num_readers
        self._clock = clock
        self._select_revoked = str(_SELECT_REVOKED.compile(dialect=engine.dialect))
        self._driver = engine.dialect.loaded_dbapi
        #: The engine as it is for reading.
        self._reading = engine
        self._threads: _Threads | None = None
        #: Only the writer's thread touches these.
        self._writer: Connection | None = None
        self._lease_id: int | None = None
        #: The last one that was committed under the lease.
        self._last_event: RunEvent | None = None
        #: The database came back without it.
        self._has_forgotten = False

    @abstractmethod
    def _has_kept(self, connection: Connection, event: RunEvent) -> bool:
        """Whether an event that was committed is there, or was deleted since."""

    @abstractmethod
    def _prepare(self) -> None:
        """Create or migrate the database; may block, and runs in the writer's thread."""

    def _begin(self, writer: Connection) -> None:  # noqa: B027 - few drivers need it
        """Begin a transaction that writes, where the driver does not do it by itself."""

    def _explain(self, error: BaseException) -> str:
        """What to tell of an error of the driver."""
        return str(error)

    async def open(self) -> None:
        """Create or migrate the database, connect to it and take a lease; idempotent.

        Raises:
            StoreFailed: there is no usable database, or a newer Streamwell wrote it.
        """
        threads = self._threads = self._threads or _Threads(self._num_readers)
        try:
            await _run(threads.writer, self._connect)
        except StoreFailed:
            self._threads = None
            # not here: reads may be waiting for the same database
            await asyncio.shield(asyncio.to_thread(threads.end))
            raise

    async def close(self) -> None:
        """Let reads and writes that came before end, then close every connection; idempotent."""
        if self._threads is None:
            return
        threads, self._threads = self._threads, None
        threads.writer.submit(self._disconnect)
        await asyncio.shield(asyncio.to_thread(threads.end))
        self._engine.dispose()

    async def _read(self, decode: Callable[[Row], T], statement: Select[Any]) -> list[T]:
        return await self._look(lambda connection: [*map(decode, connection.execute(statement))])

    async def _look(self, work: Callable[[Connection], T]) -> T:
        """The answer of `work`, which only reads, in a reader's thread."""

        def look() -> T:
            with self._store_errors(), self._reading.connect() as connection:
                return work(connection)

        return await _run(self._open_threads().readers, look)

    async def _write(self, work: Callable[[Connection], T], last: RunEvent | None = None) -> T:
        """The answer of `work`, which runs in a transaction and in the writer's thread.

        It runs once more if the connection turns out to be lost before anything is committed.
        `last` is the last event that it writes.
        """

        def carry_out() -> T:
            answer = attempt()
            self._last_event = last or self._last_event
            return answer

        def attempt() -> T:
            with self._store_errors():
                is_carried_out = False
                try:
                    with self._transaction() as connection:
                        answer = work(connection)
                        is_carried_out = True
                except (DBAPIError, self._driver.Error):
                    is_lost = self._writer is not None and self._writer.invalidated
                    if is_carried_out or not is_lost:
                        raise
                else:
                    return answer
                with self._transaction() as connection:
                    return work(connection)

        return await _run(self._open_threads().writer, carry_out)

    def _own_lease(self, connection: Connection) -> int:
        """The lease of this store; it stays its own until the transaction ends.

        Raises:
            LeaseLost: it is no longer.
        """
        if self._lease_id is None or self._is_lost(connection):
            raise LeaseLost
        return self._lease_id

    def _is_lost(self, connection: Connection) -> bool:
        if self._has_forgotten:
            return True
        row = driver_row(connection, self._select_revoked, (self._lease_id,))
        return row is None or bool(row[0])

    def _open_threads(self) -> _Threads:
        if self._threads is None:
            raise StoreFailed(_NOT_OPEN)
        return self._threads

    def _connect(self) -> None:
        if self._lease_id is not None:
            return
        try:
            with self._store_errors():
                self._prepare()
                self._writer = self._engine.connect()
                with self._transaction() as connection:
                    lease_id = take_lease(connection, self._proof, self._clock())
                self._lease_id = lease_id
        except BaseException:
            self._disconnect()
            self._engine.dispose()
            raise

    def _disconnect(self) -> None:
        self._lease_id = self._last_event = None
        self._has_forgotten = False
        writer, self._writer = self._writer, None
        is_alive = writer is not None and not writer.closed and not writer.invalidated
        self._proof.end(writer if is_alive else None)
        if writer is not None:
            writer.close()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        if self._writer is None:
            raise StoreFailed(_NOT_OPEN)
        if self._writer.closed or self._writer.invalidated:
            self._writer = self._reconnect(self._writer)
        with self._writer.begin():
            self._begin(self._writer)
            yield self._writer

    def _reconnect(self, lost: Connection) -> Connection:
        """A new connection for the writer, with new proof that its lease is alive.

        A database that crashed may have lost the last commits that it did not wait for. Then the
        lease is lost, too: nothing may be written behind a hole.
        """
        lost.close()
        writer = self._engine.connect()
        try:
            with writer.begin():
                last = self._last_event
                self._has_forgotten |= last is not None and not self._has_kept(writer, last)
                # Not for a lease that is lost: proof of life would keep others from its runs.
                if self._lease_id is not None and not self._is_lost(writer):
                    self._proof.give(writer, self._lease_id)
        except BaseException:
            writer.close()
            raise
        return writer

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        """Tell errors of the database in the words of the `Store` port."""
        try:
            yield
        except (DBAPIError, self._driver.Error) as error:
            cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
            raise self._told(cause) from error
        except (SQLAlchemyError, OSError) as error:
            raise StoreFailed(f"The database failed: {error}") from error

    def _told(self, error: BaseException) -> Exception:
        what = self._explain(error)
        if isinstance(error, self._driver.IntegrityError):
            return ValueError(f"It is there already, or belongs to something unknown: {what}")
        return StoreFailed(f"The database failed: {what}")


async def _run(thread: ThreadPoolExecutor, job: Callable[[], T]) -> T:
    """The job's answer. Cancelling withdraws a job that has not begun, and lets others end."""
    return await asyncio.get_running_loop().run_in_executor(thread, job)


def driver_row(connection: Connection, statement: str, parameters: Row = ()) -> Row | None:
    """The first row of a statement's answer, if it has one.

    Goes past SQLAlchemy, which would take longer than a small statement does.
    """
    cursor = connection.connection.cursor()
    try:
        cursor.execute(statement, parameters)
        return cursor.fetchone() if cursor.description else None
    finally:
        cursor.close()
