"""Which store a server gets: how durable, and in which database.

Each is imported only when it is wanted, so that SQLite's users pay nothing for PostgreSQL.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from streamwell.core.errors import StoreFailed
from streamwell.core.ports import Store

if TYPE_CHECKING:
    from streamwell.store.sql import SqlStore

#: `memory`: nothing outlives the process. `process`: what was shown outlives the process, but a
#: power cut may cost the last moments. `disk`: it outlives both.
Durability = Literal["memory", "process", "disk"]

DATABASE_NAME = "streamwell.db"


def make_store(durability: Durability, data_dir: Path, database_url: str | None) -> Store:
    """A store that is not open yet: in memory, in PostgreSQL if there is a URL, else in SQLite.

    Raises:
        StoreFailed: the URL is none of PostgreSQL, or its driver is missing.
    """
    if durability == "memory":
        from streamwell.store.memory import MemoryStore

        return MemoryStore()
    return make_sql_store(data_dir, database_url, is_on_disk=durability == "disk")


def make_sql_store(data_dir: Path, database_url: str | None, *, is_on_disk: bool) -> SqlStore:
    """The same for a store on a database."""
    if database_url is None:
        from streamwell.store.sqlite import SqliteStore

        return SqliteStore(data_dir / DATABASE_NAME, synchronous="full" if is_on_disk else "normal")
    try:
        from streamwell.store.postgres import PostgresStore
    except ImportError as error:
        raise StoreFailed(
            f"PostgreSQL needs a driver: pip install 'streamwell[postgres]' ({error})"
        ) from None
    return PostgresStore(database_url, synchronous_commit=is_on_disk)
