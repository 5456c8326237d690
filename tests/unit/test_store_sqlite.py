"""What is true of `SqliteStore` alone: its file, its schema, its pragmas, and a killed process."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
import traceback
from collections.abc import Coroutine, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
from sqlalchemy import Connection, event

from streamwell.core.errors import StoreFailed
from streamwell.core.types import EventKind, RunEvent, RunKind, RunSpec, SamplingParams
from streamwell.store.migrate import HEAD_REVISION, migrate, upgrade
from streamwell.store.schema import METADATA
from streamwell.store.sqlite import SqliteStore, Synchronous, _migration_engine

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


@pytest.fixture
def run() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "streamwell.db"


@pytest.fixture
def store(path: Path, run: Run) -> Iterator[SqliteStore]:
    """An open store, closed after the test."""
    store = SqliteStore(path)
    run(store.open())
    yield store
    run(store.close())


async def ask(store: SqliteStore, statement: str) -> object:
    """What the writer connection answers."""

    def execute(connection: Connection) -> object:
        result = connection.exec_driver_sql(statement)
        return result.scalar() if result.returns_rows else None

    return await store._write(execute)


def schema_of(path: Path) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        statement = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
        return connection.execute(statement).fetchall()


def revision_of(path: Path) -> object:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT version_num FROM alembic_version").fetchone()[0]


def open_and_close(path: Path, run: Run) -> None:
    store = SqliteStore(path)
    run(store.open())
    run(store.close())


def test_the_file_is_made_with_its_directory_and_private(tmp_path: Path, run: Run) -> None:
    """Prompts are private: a new file is readable by its owner only, and so is its WAL."""
    path = tmp_path / "state" / "deep" / "streamwell.db"
    store = SqliteStore(path)
    run(store.open())
    run(store.commit([a_run("a")], []))
    modes = {file.name: oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir()}
    run(store.close())
    expected = {"streamwell.db", "streamwell.db-wal", "streamwell.db-shm"}
    assert dict.fromkeys(expected, "0o600") == modes


@pytest.mark.parametrize(("synchronous", "level"), [("off", 0), ("normal", 1), ("full", 2)])
def test_pragmas(path: Path, run: Run, synchronous: Synchronous, level: int) -> None:
    """WAL, foreign keys, a busy timeout, and the asked-for `synchronous` are in force."""
    store = SqliteStore(path, synchronous=synchronous)
    run(store.open())
    pragmas = ("journal_mode", "foreign_keys", "busy_timeout", "synchronous")
    values = [run(ask(store, f"PRAGMA {pragma}")) for pragma in pragmas]
    run(store.close())
    assert ["wal", 1, 5000, level] == values


def test_a_commit_takes_three_statements_whatever_its_size(store: SqliteStore, run: Run) -> None:
    """Runs, events and ends are one statement each."""
    statements: list[str] = []

    @event.listens_for(store._engine, "before_cursor_execute")
    def collect(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    runs = [a_run(f"run-{number}") for number in range(64)]
    ends = [RunEvent(run_id=spec.run_id, seq=1, kind=EventKind.END) for spec in runs]
    run(store.commit(runs, [a_delta(spec.run_id, 0) for spec in runs] + ends))
    assert ["INSERT", "INSERT", "UPDATE"] == [statement.split()[0] for statement in statements]


@pytest.mark.parametrize(("query_only", "error"), [("OFF", ValueError), ("ON", StoreFailed)])
def test_an_error_does_not_tell_what_was_written(
    store: SqliteStore, run: Run, query_only: str, error: type[Exception]
) -> None:
    """Errors reach logs; prompts and answers must not, be it a refusal or a failure."""
    run(store.commit([a_run("a")], [a_delta("a", 0)]))
    run(ask(store, f"PRAGMA query_only = {query_only}"))
    text = "hunter2"
    with pytest.raises(error) as raised:
        run(store.commit([], [a_delta("a", 0, text)]))
    assert "hunter2" not in "".join(traceback.format_exception(raised.value))


def test_another_store_reads_the_same_file(store: SqliteStore, path: Path, run: Run) -> None:
    """A second store on the file, of another process for instance, sees what is committed."""
    reader = SqliteStore(path)
    run(reader.open())
    run(store.commit([a_run("a")], [a_delta("a", 0)]))
    assert [a_delta("a", 0)] == run(reader.events("a"))
    run(reader.close())


def test_a_database_that_fails_raises_a_store_error(store: SqliteStore, run: Run) -> None:
    """A failure of SQLite is told as `StoreFailed`, keeps nothing, and passes with its cause."""
    run(ask(store, "PRAGMA query_only = ON"))
    with pytest.raises(StoreFailed, match="readonly"):
        run(store.commit([a_run("a")], []))
    run(ask(store, "PRAGMA query_only = OFF"))
    run(store.commit([a_run("a")], []))
    assert a_run("a") == run(store.run("a"))


def test_files_are_opened_off_the_event_loop(path: Path, run: Run) -> None:
    """What may block while opening runs in a thread of its own."""
    threads = []

    class Watched(SqliteStore):
        def _prepare(self) -> None:
            threads.append(threading.current_thread())
            super()._prepare()

    store = Watched(path)
    run(store.open())
    run(store.close())
    assert [False] == [thread is threading.current_thread() for thread in threads]


def test_one_thread_writes(store: SqliteStore, run: Run) -> None:
    """All transactions run in one thread, which is not the event loop's."""

    async def transactions() -> list[int]:
        return await asyncio.gather(
            *(store._write(lambda _connection: threading.get_ident()) for _ in range(8))
        )

    threads = set(run(transactions()))
    assert 1 == len(threads)
    assert threading.get_ident() not in threads


def test_reads_do_not_wait_for_a_writer_that_is_held_up(
    store: SqliteStore, path: Path, run: Run
) -> None:
    """While another process has the file locked, runs are read; then the commit goes through."""
    run(store.commit([a_run("a")], [a_delta("a", 0)]))

    async def read_beside_a_commit() -> list[RunEvent]:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            commit = asyncio.create_task(store.commit([], [a_delta("a", 1)]))
            events = await store.events("a")
            assert not commit.done()
            other.execute("COMMIT")
        await commit
        return events

    assert [a_delta("a", 0)] == run(read_beside_a_commit())
    assert [a_delta("a", 0), a_delta("a", 1)] == run(store.events("a"))


def test_closing_ends_the_threads(path: Path, run: Run) -> None:
    """A store that is closed, or could not be opened, leaves no thread behind."""
    before = set(threading.enumerate())
    store = SqliteStore(path)
    run(store.open())
    run(store.commit([a_run("a")], []))
    run(store.run("a"))
    run(store.close())
    path.write_text("not a database, but long enough to be read as the header of one\n" * 9)
    with pytest.raises(StoreFailed):
        run(SqliteStore(path).open())
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not [name for name in left if name.startswith("store")]


def test_head_revision_is_the_newest_migration() -> None:
    """The constant that lets `open` skip Alembic agrees with Alembic."""
    from alembic.script import ScriptDirectory

    import streamwell.store.migrations as migrations

    directory = ScriptDirectory(str(Path(migrations.__file__).parent))
    assert HEAD_REVISION == directory.get_current_head()


def test_a_new_file_is_stamped_with_the_head_revision(store: SqliteStore, path: Path) -> None:
    """A file made without Alembic says which revision it has."""
    assert HEAD_REVISION == revision_of(path)


def test_the_migrations_make_the_schema_of_a_new_file(tmp_path: Path, run: Run) -> None:
    """Migrating from nothing and creating at once give the same tables, to the letter."""
    created, migrated = tmp_path / "created.db", tmp_path / "migrated.db"
    open_and_close(created, run)
    with _migration_engine(migrated).begin() as connection:
        upgrade(connection, None)
    assert schema_of(created) == schema_of(migrated)
    assert revision_of(created) == revision_of(migrated)


def test_the_tables_in_code_are_those_in_the_file(path: Path, run: Run) -> None:
    """Alembic finds no difference between `METADATA` and a file; a forgotten migration shows."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with _migration_engine(path).begin() as connection:
        upgrade(connection, None)
        assert [] == compare_metadata(MigrationContext.configure(connection), METADATA)


def test_an_older_file_is_migrated(path: Path, run: Run) -> None:
    """A file whose revision is behind gets the missing tables when it is opened."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY)")
    store = SqliteStore(path)
    run(store.open())
    run(store.commit([a_run("a")], []))
    run(store.close())
    assert HEAD_REVISION == revision_of(path)


def test_a_newer_file_is_refused(path: Path, run: Run) -> None:
    """A revision that is not ours means a newer Streamwell; the error says so and names both."""
    open_and_close(path, run)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreFailed, match=rf"9999.*{HEAD_REVISION}.*newer"):
        run(SqliteStore(path).open())


def test_a_file_of_another_program_is_refused_and_untouched(path: Path, run: Run) -> None:
    """Pointing Streamwell at the wrong file must not change that file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreFailed, match="another program"):
        run(SqliteStore(path).open())
    assert before == path.read_bytes()


def test_a_file_that_is_no_database_is_refused(path: Path, run: Run) -> None:
    """A text file is not opened, and not overwritten."""
    path.write_text("not a database, but long enough to be read as the header of one\n" * 9)
    with pytest.raises(StoreFailed, match="not a database"):
        run(SqliteStore(path).open())


def test_a_path_that_cannot_be_made_is_refused(tmp_path: Path, run: Run) -> None:
    """An error of the file system is told as `StoreFailed`, with the path."""
    (tmp_path / "file").touch()
    with pytest.raises(StoreFailed, match=r"cannot be opened.*file"):
        run(SqliteStore(tmp_path / "file" / "streamwell.db").open())


def test_creating_the_tables_is_one_transaction(path: Path) -> None:
    """A process that dies while it creates the tables leaves none, so that the next can start."""

    def create_and_die() -> None:
        with _migration_engine(path).begin() as connection:
            migrate(connection)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create_and_die()
    assert [] == schema_of(path)


def child(*arguments: object) -> list[str]:
    return [sys.executable, __file__, *map(str, arguments)]


def open_twice(path: Path) -> None:
    """In a child process: open a new file, then the same file again; tell if Alembic came in."""
    for _ in range(2):
        asyncio.run(open_once(path))
    print("alembic" in sys.modules)  # noqa: T201


async def open_once(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()


def commit_for_ever(path: Path) -> None:
    """In a child process: commit four events at a time, and print the last `seq` of each commit."""

    async def commit() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.commit([a_run("a")], [])
        for seq in count(step=4):
            await store.commit([], [a_delta("a", seq + offset) for offset in range(4)])
            print(seq + 3, flush=True)  # noqa: T201

    asyncio.run(commit())


@pytest.mark.slow
def test_opening_does_not_import_alembic(path: Path) -> None:
    """Neither a new file nor one at the head revision pays for the import of Alembic."""
    answer = subprocess.run(child("open_twice", path), capture_output=True, text=True, check=True)
    assert "False\n" == answer.stdout


@pytest.mark.slow
@pytest.mark.parametrize("num_commits", [1, 10, 100])
def test_acknowledged_events_survive_a_kill(path: Path, run: Run, num_commits: int) -> None:
    """After SIGKILL every acknowledged event is there, and no commit is there by half."""
    with subprocess.Popen(
        child("commit_for_ever", path), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(num_commits)]
        process.kill()
        acknowledged += [line for line in process.stdout if line.endswith("\n")]
    store = SqliteStore(path)
    run(store.open())
    events, unended = run(store.events("a")), run(store.unended_runs())
    run(store.close())
    assert [a_delta("a", seq) for seq in range(len(events))] == events
    assert len(events) > int(acknowledged[-1])
    assert 0 == len(events) % 4
    assert [a_run("a")] == unended


if __name__ == "__main__":
    {"open_twice": open_twice, "commit_for_ever": commit_for_ever}[sys.argv[1]](Path(sys.argv[2]))
