"""`SqliteStore`: the store in one SQLite file; engine and pragmas only."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError

from streamwell.core.errors import StoreFailed
from streamwell.store.database import driver_row
from streamwell.store.lock_files import LockFiles
from streamwell.store.migrate import migrate
from streamwell.store.sql import SqlStore

#: How hard a commit is pressed onto the disk. All survive a kill of the process; `full` survives
#: a power cut too, `normal` may then lose the last commits.
Synchronous = Literal["normal", "full"]

_FileIds = tuple[tuple[int, int] | None, ...]

_NUM_READERS = 4

_BUSY_TIMEOUT = "PRAGMA busy_timeout = 5000"
_BUSY_S, _RETRY_S = 5.0, 0.01
_SYNCHRONOUS = {
    "normal": "PRAGMA synchronous = NORMAL",
    "full": "PRAGMA synchronous = FULL",
}


#: What to do about errors, by the beginning of SQLite's names for them.
_ADVICE = {
    "SQLITE_BUSY": "another process writes, and does not end; did somebody open it by hand?",
    "SQLITE_FULL": "make room on the disk, or let `streamwell db prune` delete old runs",
    "SQLITE_IOERR": "is the disk full, or broken?",
    "SQLITE_READONLY": "this user must be allowed to write the file and its folder",
    "SQLITE_CANTOPEN": "this user must be allowed to write the file and its folder",
    "SQLITE_CORRUPT": "move the file away, and a new one is made",
    "SQLITE_NOTADB": "move the file away, and a new one is made",
}


class SqliteStore(SqlStore):
    """A `Store` in one file; `-wal`, `-shm` and `.lease-` files lie beside it while it is open.

    A file that is not there is made, with its directory, and readable by its owner only.
    """

    def __init__(
        self,
        path: Path,
        *,
        synchronous: Synchronous = "normal",
        clock: Callable[[], float] = time.time,
    ) -> None:
        engine = create_engine(
            # never makes a file: `_prepare` does that
            URL.create(
                "sqlite", database=path.absolute().as_uri(), query={"mode": "rw", "uri": "true"}
            ),
            pool_size=_NUM_READERS + 1,
            max_overflow=0,
            # sqlite3 would begin no transaction before a SELECT; `_begin` does.
            connect_args={"isolation_level": None},
            # Parameters are people's prompts; they do not belong into error messages.
            hide_parameters=True,
        )
        event.listen(engine, "connect", lambda *_: self._check_in_place())
        _run_on_connect(
            engine,
            _BUSY_TIMEOUT,
            "PRAGMA journal_mode = WAL",
            _SYNCHRONOUS[synchronous],
            "PRAGMA foreign_keys = ON",
        )
        locks = LockFiles(path.resolve())  # one name, whatever links lead to it
        super().__init__(engine, locks, _NUM_READERS, clock)
        self._path = path
        #: What the file and its `-wal` are known by while they are open.
        self._file_ids: _FileIds | None = None

    def _connect(self) -> None:
        # SQLite does not wait for a process that creates the file, mends it after a crash, or
        # closes it as the last one: it says at once that the file is locked.
        deadline_s = time.monotonic() + _BUSY_S
        while True:
            try:
                super()._connect()
            except StoreFailed as error:
                if not _is_busy(error.__cause__) or time.monotonic() > deadline_s:
                    raise
            else:
                self._file_ids = _file_ids(self._path)
                return
            time.sleep(_RETRY_S)

    def _prepare(self) -> None:
        self._file_ids = None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, mode=0o600))
        except OSError as error:
            raise StoreFailed(f"The database cannot be opened: {error}") from error
        engine = _migration_engine(self._path)
        with engine.begin() as connection:
            migrate(connection)

    def _begin(self, writer: Connection) -> None:
        try:
            self._check_in_place()
        except StoreFailed:
            # into the file, wherever it is now: the `-wal` would be taken for another file's
            with suppress(sqlite3.Error):
                driver_row(writer, "PRAGMA wal_checkpoint(TRUNCATE)")
            raise
        # At once and not with the first write, so that what a transaction reads stays true.
        driver_row(writer, "BEGIN IMMEDIATE")

    def _check_in_place(self) -> None:
        """Without a WAL SQLite would look for itself: nobody would find again what is written."""
        if self._file_ids is not None and self._file_ids != _file_ids(self._path):
            raise StoreFailed(
                f"The database, or its -wal, was moved, removed or replaced: {self._path} (put it "
                "back, or restart the server)"
            )

    def _explain(self, error: BaseException) -> str:
        name = getattr(error, "sqlite_errorname", "")
        advice = next((text for key, text in _ADVICE.items() if name.startswith(key)), "")
        return f"{error}: {self._path} ({advice})" if advice else str(error)


def _migration_engine(path: Path) -> Engine:
    """An engine whose transactions hold the write lock and cover `CREATE` and `ALTER` as well.

    Foreign keys stay off: a migration that rebuilds `runs` must not cascade into its events.
    """
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=NullPool,
        # sqlite3 would begin no transaction before a CREATE; ours begins below.
        connect_args={"isolation_level": None},
    )
    _run_on_connect(engine, _BUSY_TIMEOUT)

    @event.listens_for(engine, "begin")
    def begin_immediate(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _file_ids(path: Path) -> _FileIds:
    """What a database and its `-wal` are known by to the system, whatever their names."""
    return _file_id(path), _file_id(path.with_name(f"{path.name}-wal"))


def _file_id(path: Path) -> tuple[int, int] | None:
    """`None` if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_busy(error: BaseException | None) -> bool:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return getattr(cause, "sqlite_errorname", "").startswith("SQLITE_BUSY")


def _run_on_connect(engine: Engine, *pragmas: str) -> None:
    @event.listens_for(engine, "connect")
    def run_pragmas(dbapi_connection: DBAPIConnection, _record: object) -> None:
        cursor = dbapi_connection.cursor()
        for pragma in pragmas:
            cursor.execute(pragma)
        cursor.close()
