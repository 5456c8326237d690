"""`PostgresStore`: the store in a PostgreSQL database; engine, timeouts and locks only."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import psycopg
from sqlalchemy import URL, Connection, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from streamwell.core.errors import StoreFailed
from streamwell.store.database import driver_row
from streamwell.store.migrate import migrate
from streamwell.store.sql import SqlStore

_NUM_READERS = 4

#: What keeps our advisory locks apart from those of other programs on the same database.
_LEASES, _MIGRATIONS = 0x5374_7265, 0x5374_7266

#: Nothing waits for ever: not for a connection, nor for a machine that is lost. The server watches
#: as well, so that it ends the session, and with it the lease, of a machine that is gone.
_CONNECT_TIMEOUTS = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_SETTINGS = """
    SET tcp_keepalives_idle = 30;
    SET tcp_keepalives_interval = 10;
    SET tcp_keepalives_count = 3;
    SET statement_timeout = '60s';
    SET lock_timeout = '20s';
    SET idle_in_transaction_session_timeout = '60s';
"""
_SYNCHRONOUS = {True: "SET synchronous_commit = on", False: "SET synchronous_commit = off"}
#: For migrations, which may have much to do, and wait for those of another server.
_PATIENCE = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '600s'"
_POOL_TIMEOUT_S = 30.0

_COPY_EVENTS = "COPY run_events FROM STDIN (FORMAT binary)"
_EVENT_TYPES = ("text", "int4", "int2", "int4", "bytea", "bytea", "text", "bytea")


class PostgresStore(SqlStore):
    """A `Store` in a PostgreSQL database, which other servers may use at the same time.

    `url` begins with `postgresql://` or `postgresql+psycopg://`. Without `synchronous_commit`, a
    crash of PostgreSQL or of its machine may cost the last commits.

    Raises:
        StoreFailed: the URL is none of PostgreSQL.
    """

    def __init__(
        self,
        url: str,
        *,
        synchronous_commit: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        engine = create_engine(
            _psycopg_url(url),
            pool_size=_NUM_READERS + 1,
            max_overflow=0,
            pool_timeout=_POOL_TIMEOUT_S,
            # A connection that was lost while nobody read is replaced and not handed out.
            pool_pre_ping=True,
            paramstyle="format",
            connect_args=_CONNECT_TIMEOUTS,
            # Parameters are people's prompts; they do not belong into error messages.
            hide_parameters=True,
        )
        settings = _SETTINGS + _SYNCHRONOUS[synchronous_commit]

        @event.listens_for(engine, "connect")
        def set_up(dbapi_connection: DBAPIConnection, _record: object) -> None:
            cursor = dbapi_connection.cursor()
            cursor.execute(settings)
            cursor.close()
            dbapi_connection.commit()

        super().__init__(engine, _AdvisoryLocks(), _NUM_READERS, clock)
        # A read is one statement, and needs no transaction around it.
        self._reading = engine.execution_options(isolation_level="AUTOCOMMIT")

    def _prepare(self) -> None:
        with self._engine.begin() as connection:
            driver_row(connection, _PATIENCE)
            driver_row(connection, "SELECT pg_advisory_xact_lock(%s, 0)", (_MIGRATIONS,))
            migrate(connection)

    def _insert_events(self, connection: Connection, rows: list[tuple[object, ...]]) -> None:
        # COPY takes half the time of INSERT, and less than half of the CPU's.
        cursor = connection.connection.cursor()
        with cursor.copy(_COPY_EVENTS) as copy:
            copy.set_types(_EVENT_TYPES)
            for row in rows:
                copy.write_row(row)

    def _explain(self, error: BaseException) -> str:
        """PostgreSQL's own words, without the values that it may quote in the details."""
        if isinstance(error, psycopg.Error) and error.diag.message_primary:
            return error.diag.message_primary
        return str(error).strip()


class _AdvisoryLocks:
    """A `Proof` by a lock of the writer's session; the server unlocks when the session ends.

    Not by a session of its own: whoever cannot write must not keep runs from others.
    """

    def give(self, connection: Connection, lease_id: int) -> None:
        # Waits, because whoever looks whether the lock is free holds it for a moment.
        driver_row(connection, "SELECT pg_advisory_lock(%s, %s)", (_LEASES, lease_id))

    def is_gone(self, connection: Connection, lease_id: int) -> bool:
        # Held until the transaction ends: the holder must not come back in the middle of it.
        statement = "SELECT pg_try_advisory_xact_lock(%s, %s)"
        row = driver_row(connection, statement, (_LEASES, lease_id))
        return row is not None and bool(row[0])

    def end(self, connection: Connection | None) -> None:
        # Closing would do it too, but at a time of the server's choice.
        if connection is not None:
            with suppress(psycopg.Error, SQLAlchemyError), connection.begin():
                driver_row(connection, "SELECT pg_advisory_unlock_all()")


def _psycopg_url(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Without the cause, which may quote the password.
        raise StoreFailed(
            "The database URL cannot be understood; it is postgresql://USER:PASSWORD@HOST/NAME."
        ) from None
    if parsed.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise StoreFailed(f"The database URL begins with {parsed.drivername}:, not postgresql:.")
    if "@" in (parsed.host or ""):
        # The rest of the password would be taken for the host, and told as one that is not found.
        raise StoreFailed("A @ in the password of the database URL is to be written as %40.")
    return parsed.set(drivername="postgresql+psycopg")
