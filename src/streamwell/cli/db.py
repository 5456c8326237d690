"""`streamwell db`: look after the database of the run log. Imports little at the top."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

from cyclopts import App, Parameter
from cyclopts.validators import Number

from streamwell.core.errors import InvalidRequest, StoreFailed
from streamwell.settings import default_data_dir
from streamwell.settings.converters import FILE

if TYPE_CHECKING:
    from streamwell.store.sql import SqlStore

_HOUR_S, _MIB = 3600, 1 << 20
_NotNegative = Number(gte=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """Which database it is; the same flags as those of `streamwell serve`."""

    data_dir: Annotated[Path | None, FILE] = None
    "Folder of the run log; default: the user's data folder."

    database_url: str | None = None
    "PostgreSQL database of the run log, instead of a file in the data folder."


_Database = Annotated[Database, Parameter(name="*")]
_DEFAULT = Database()

app = App(name="db", help="Look after the database of the run log.")


@app.command
def upgrade(*, database: _Database = _DEFAULT) -> None:
    """Bring the database to the schema of this version, as the start of a server does."""

    async def report(_store: SqlStore) -> None:
        from streamwell.store.migrate import HEAD_REVISION

        print(f"The database has schema revision {HEAD_REVISION}.")

    _with_store(database, report, may_be_new=True)


@app.command
def prune(
    *,
    older_than_h: Annotated[float | None, Parameter(validator=_NotNegative)] = None,
    max_mib: Annotated[float | None, Parameter(validator=_NotNegative)] = None,
    database: _Database = _DEFAULT,
) -> None:
    """Delete ended runs; servers may run meanwhile.

    Parameters
    ----------
    older_than_h
        Delete runs that ended more hours ago than this.
    max_mib
        Delete the oldest runs until the rest takes no more MiB than this.
    """
    if older_than_h is None and max_mib is None:
        raise InvalidRequest("give --older-than-h, --max-mib, or both")

    async def delete(store: SqlStore) -> None:
        import time

        num_deleted = 0
        if older_than_h is not None:
            time_s = time.time() - older_than_h * _HOUR_S
            num_deleted += await store.delete_old(
                ended_before_s=time_s, unstored_before_s=time_s, stored_before_s=time_s
            )
        if max_mib is not None:
            num_deleted += await store.delete_oldest(max_bytes=int(max_mib * _MIB))
        print(f"{num_deleted} runs were deleted.")

    _with_store(database, delete)


@app.command
def export(
    *, run: str | None = None, output: Path | None = None, database: _Database = _DEFAULT
) -> None:
    """Write runs with their events, one JSON object per line.

    Parameters
    ----------
    run
        Id of the only run to write; default: all runs.
    output
        File to write, readable by its owner only; default: standard output.
    """

    async def write(store: SqlStore) -> None:
        from streamwell.store.export import export_run, export_runs

        # Before the file is opened: a wrong id must not empty it.
        only = None if run is None else await export_run(store, run)
        with _opened(output) as file:
            if only is not None:
                file.write(only)
                return
            async for line in export_runs(store):
                file.write(line)

    _with_store(database, write)


def _with_store(
    database: Database,
    work: Callable[[SqlStore], Coroutine[Any, Any, None]],
    *,
    may_be_new: bool = False,
) -> None:
    """Open the store, work with it, and close it.

    Raises:
        StoreFailed: there is no database, or it cannot be used.
    """
    import asyncio

    from streamwell.store.choose import DATABASE_NAME, make_sql_store

    data_dir = database.data_dir or default_data_dir()
    path = data_dir / DATABASE_NAME
    if database.database_url is None and not may_be_new and not path.exists():
        raise StoreFailed(f"There is no database at {path}.")
    store = make_sql_store(data_dir, database.database_url, is_on_disk=True)

    async def run() -> None:
        await store.open()
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(run())


@contextmanager
def _opened(output: Path | None) -> Iterator[BinaryIO]:
    if output is None:
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            # Whoever read has had enough, like `head`; nothing is left to flush at the exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode=0o600)
    except OSError as error:
        raise InvalidRequest(f"--output cannot be written: {error}", "output") from None
    with open(descriptor, "wb") as file:
        yield file
