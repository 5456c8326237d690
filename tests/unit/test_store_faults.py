"""What a SQLite file may suffer: `SqliteStore` tells it, loses nothing, and works again after."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlite_rig import Run, a_delta, a_run, ask

from streamwell.core.errors import StoreFailed
from streamwell.core.types import EventKind, RunEvent
from streamwell.store.sqlite import SqliteStore

#: A user that may do little; root may write everything.
_NOBODY = 65534


@pytest.fixture
def store(store: SqliteStore, run: Run) -> SqliteStore:
    """An open store with one run and one event."""
    run(store.commit([a_run("a")], [a_delta("a", 0)]))
    return store


def check_all_is_well(store: SqliteStore, run: Run) -> None:
    """The store takes the next event, holds what it took before, and its file is sound."""
    run(store.commit([a_run("b")], [a_delta("a", 1)]))
    assert [a_delta("a", 0), a_delta("a", 1)] == run(store.events("a"))
    assert "ok" == run(ask(store, "PRAGMA integrity_check"))
    assert run(ask(store, "PRAGMA foreign_key_check")) is None


def test_a_file_that_another_process_locks(store: SqliteStore, path: Path, run: Run) -> None:
    """Whoever locks the file for longer than the store waits makes writes fail, but not reads."""
    run(ask(store, "PRAGMA busy_timeout = 1"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            with pytest.raises(StoreFailed, match=r"locked.*another process"):
                run(store.commit([a_run("b")], [a_delta("a", 1)]))
            with pytest.raises(StoreFailed, match="locked"):
                run(store.adopt(["brooklet"]))
        assert [a_delta("a", 0)] == run(store.events("a"))
    check_all_is_well(store, run)


def test_a_disk_that_is_full(store: SqliteStore, run: Run) -> None:
    """A commit that finds no room fails as a whole; what fits is taken, and all when room is."""
    run(ask(store, f"PRAGMA max_page_count = {run(ask(store, 'PRAGMA page_count')) + 4}"))
    for _ in range(3):
        with pytest.raises(StoreFailed, match=r"full.*prune"):
            run(store.commit([a_run("b")], [a_delta("b", 0), a_delta("a", 1, "x" * 100_000)]))
        assert run(store.run("b")) is None
    assert [a_delta("a", 0)] == run(store.events("a"))
    run(store.commit([a_run("c")], [a_delta("c", 0)]))
    run(ask(store, "PRAGMA max_page_count = 1000000"))
    check_all_is_well(store, run)


def test_a_full_disk_takes_deletions(store: SqliteStore, run: Run) -> None:
    """Old runs can be deleted when nothing else fits, and their room is used again."""
    ends = [RunEvent(run_id=id_, seq=1, kind=EventKind.END) for id_ in ("big-1", "big-2")]
    texts = [a_delta(end.run_id, 0, "x" * 200_000) for end in ends]
    run(store.commit([a_run("big-1"), a_run("big-2")], texts))
    run(store.commit([], ends))
    run(ask(store, f"PRAGMA max_page_count = {run(ask(store, 'PRAGMA page_count'))}"))
    more = a_delta("a", 1, "y" * 150_000)
    with pytest.raises(StoreFailed, match="full"):
        run(store.commit([], [more]))
    assert 1 == run(store.delete_oldest(max_bytes=300_000))
    run(store.commit([], [more]))
    assert [a_delta("a", 0), more] == run(store.events("a"))


def test_a_file_that_becomes_read_only(store: SqliteStore, run: Run) -> None:
    """Writes are refused while the file may not be written, reads go on."""
    run(ask(store, "PRAGMA query_only = ON"))
    with pytest.raises(StoreFailed, match=r"readonly.*must be allowed"):
        run(store.commit([a_run("b")], []))
    assert [a_delta("a", 0)] == run(store.events("a"))
    run(ask(store, "PRAGMA query_only = OFF"))
    check_all_is_well(store, run)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_is_moved_away(
    store: SqliteStore, path: Path, run: Run, is_replaced: bool
) -> None:
    """The next start would not find what is written now: it is refused until the file is back."""
    away = path.with_name("away.db")
    path.rename(away)
    if is_replaced:
        path.touch()
    for _ in range(2):
        with pytest.raises(StoreFailed, match=r"moved.*put it back"):
            run(store.commit([a_run("b")], [a_delta("a", 1)]))
        with pytest.raises(StoreFailed, match=r"put it back|unable to open"):
            run(store.events("a"))  # by a reader that looks for the file for the first time
    assert is_replaced == path.exists()
    assert ["a"] == runs_in(away)
    away.replace(path)
    check_all_is_well(store, run)


def runs_in(path: Path) -> list[str]:
    """What a database has by itself, without a `-wal`."""
    with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as alone:
        return [run_id for (run_id,) in alone.execute("SELECT id FROM runs ORDER BY id")]


def test_a_backup_that_takes_the_place_of_a_file(
    store: SqliteStore, path: Path, tmp_path: Path, run: Run
) -> None:
    """What lies beside the old file is nothing of its own: the next server gets it whole."""
    backup = tmp_path / "backup.db"
    with closing(sqlite3.connect(path)) as here, closing(sqlite3.connect(backup)) as there:
        here.backup(there)
    run(store.commit([a_run("b")], [a_delta("a", 1)]))
    backup.replace(path)
    with pytest.raises(StoreFailed, match=r"replaced.*restart the server"):
        run(store.commit([], [a_delta("a", 2)]))
    run(store.close())
    heir = SqliteStore(path)
    run(heir.open())
    assert "ok" == run(ask(heir, "PRAGMA integrity_check"))
    assert [True, False] == [run(heir.run(run_id)) is not None for run_id in "ab"]
    run(heir.close())


def test_a_file_that_loses_its_log(store: SqliteStore, path: Path, run: Run) -> None:
    """Nothing is taken that the next start would not find; what was taken before, it has."""
    path.with_name(f"{path.name}-wal").unlink()
    with pytest.raises(StoreFailed, match="restart the server"):
        run(store.commit([a_run("b")], []))
    assert ["a"] == runs_in(path)


def open_and_tell(path: Path) -> None:
    """In a child process: open the store as one who is not root, and say how it went."""
    store = SqliteStore(path)
    if os.geteuid() == 0:
        os.setuid(_NOBODY)  # only now: Python itself may lie where nobody else can read it

    async def open_it() -> None:
        try:
            await store.open()
        except StoreFailed as error:
            print(error)  # noqa: T201
            return
        print(await store.run("a") == a_run("a"))  # noqa: T201
        await store.close()

    asyncio.run(open_it())


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder of a user who is not root; not pytest's, which such users cannot enter."""
    folder = Path(tempfile.mkdtemp(prefix="streamwell-"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
def test_a_file_that_may_not_be_written(shared_folder: Path, run: Run) -> None:
    """A user who may not write the file is told so; once allowed, all is there."""
    path = shared_folder / "streamwell.db"
    store = SqliteStore(path)
    run(store.open())
    run(store.commit([a_run("a")], []))
    run(store.close())
    path.chmod(0o444)
    if os.geteuid() == 0:
        for file in (shared_folder, path):
            os.chown(file, _NOBODY, _NOBODY)
    answers = []
    for mode in (0o444, 0o600):
        path.chmod(mode)
        command = [sys.executable, __file__, str(path)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        answers.append(answer.stdout)
    assert "Permission denied" in answers[0]
    assert str(path) in answers[0]
    assert "True\n" == answers[1]


def test_a_lock_file_of_a_living_server_is_respected(path: Path, run: Run) -> None:
    """Whoever moves the database of a running server away cannot start another in its place."""
    old, new = SqliteStore(path), SqliteStore(path)
    run(old.open())
    for file in path.parent.glob("streamwell.db*"):
        if ".lease-" not in file.name:
            file.rename(file.with_name(f"old-{file.name}"))
    with pytest.raises(StoreFailed, match="server still runs"):
        run(new.open())
    run(old.close())
    run(new.open())
    run(new.commit([replace(a_run("a"), created_s=5)], []))
    run(new.close())


if __name__ == "__main__":
    open_and_tell(Path(sys.argv[1]))
