"""What is true of `SqliteStore` alone: its file, its schema, its pragmas, and a killed process."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
import traceback
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlite_rig import Run, a_delta, a_run, ask

from streamwell.core.errors import StoreFailed
from streamwell.core.types import EventKind, RunEvent
from streamwell.store.sqlite import SqliteStore, Synchronous


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
    suffixes = ("", "-wal", "-shm", ".lease-1")
    expected = [f"streamwell.db{suffix}" for suffix in suffixes]
    assert dict.fromkeys(expected, "0o600") == modes


@pytest.mark.parametrize(("synchronous", "level"), [("normal", 1), ("full", 2)])
def test_pragmas(path: Path, run: Run, synchronous: Synchronous, level: int) -> None:
    """WAL, foreign keys, a busy timeout, and the asked-for `synchronous` are in force."""
    store = SqliteStore(path, synchronous=synchronous)
    run(store.open())
    pragmas = ("journal_mode", "foreign_keys", "busy_timeout", "synchronous")
    values = [run(ask(store, f"PRAGMA {pragma}")) for pragma in pragmas]
    run(store.close())
    assert ["wal", 1, 5000, level] == values


def test_a_commit_takes_three_statements_whatever_its_size(store: SqliteStore, run: Run) -> None:
    """Runs, events and ends are one statement each, besides the check of the lease."""
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


def test_a_path_that_cannot_be_made_is_refused(tmp_path: Path, run: Run) -> None:
    """An error of the file system is told as `StoreFailed`, with the path."""
    (tmp_path / "file").touch()
    with pytest.raises(StoreFailed, match=r"cannot be opened.*file"):
        run(SqliteStore(tmp_path / "file" / "streamwell.db").open())


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
@pytest.mark.parametrize("num_commits", [1, 10, 100])
def test_acknowledged_events_survive_a_kill(path: Path, run: Run, num_commits: int) -> None:
    """After SIGKILL every acknowledged event is there, and no commit is there by half."""
    with subprocess.Popen(
        [sys.executable, __file__, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(num_commits)]
        process.kill()
        acknowledged += [line for line in process.stdout if line.endswith("\n")]
    store = SqliteStore(path)
    run(store.open())
    events, unended = run(store.events("a")), run(store.adopt(["brooklet"]))
    run(store.close())
    assert [a_delta("a", seq) for seq in range(len(events))] == events
    assert len(events) > int(acknowledged[-1])
    assert 0 == len(events) % 4
    assert [a_run("a")] == unended


if __name__ == "__main__":
    commit_for_ever(Path(sys.argv[1]))
