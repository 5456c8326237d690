"""Leases of real processes, on every database that processes can share."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from stores import Run, a_delta, a_run, ids

from streamwell.core.types import RunSpec
from streamwell.store.postgres import PostgresStore
from streamwell.store.sql import SqlStore
from streamwell.store.sqlite import SqliteStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the database is: a path, or a URL."""
    if request.param == "sqlite":
        return str(tmp_path / "streamwell.db")
    return str(request.getfixturevalue("url"))


def store_at(address: str) -> SqlStore:
    if address.startswith("postgresql"):
        return PostgresStore(address)
    return SqliteStore(Path(address))


def hold_a_run(address: str) -> None:
    """In a child process: start run `a`, say so, and commit an event for every line of input."""

    async def hold() -> None:
        store = store_at(address)
        await store.open()
        await store.commit([a_run("a")], [])
        for seq, _line in enumerate(sys.stdin, start=-1):
            if seq >= 0:
                await store.commit([], [a_delta("a", seq)])
            print(seq, flush=True)  # noqa: T201

    asyncio.run(hold())


@contextmanager
def holder_of_a_run(address: str) -> Iterator[subprocess.Popen[str]]:
    """A process that drives run `a`."""
    command = [sys.executable, __file__, address]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        say(process, "-1")
        yield process
        process.kill()


def say(process: subprocess.Popen[str], expected: str) -> None:
    """Ask for the next step, and wait until it is done."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert f"{expected}\n" == process.stdout.readline()


async def adopt_at_last(store: SqlStore) -> list[RunSpec]:
    """What is adopted once there is something; PostgreSQL may take a moment to miss a client."""
    while not (specs := await store.adopt(["brooklet"])):
        pass
    return specs


def test_a_killed_process_leaves_its_runs(address: str, run: Run) -> None:
    """While it lives its run stays with it; after SIGKILL another process takes the run over."""
    store = store_at(address)
    run(store.open())
    with holder_of_a_run(address) as process:
        assert [] == run(store.adopt(["brooklet"]))
        say(process, "0")
        process.kill()
        assert ["a"] == ids(run(adopt_at_last(store)))
    run(store.commit([], [a_delta("a", 1)]))
    assert [a_delta("a", 0), a_delta("a", 1)] == run(store.events("a"))
    run(store.close())


def test_a_stopped_process_keeps_its_runs(address: str, run: Run) -> None:
    """However long a process is silent, it lives: nobody takes its run, and it goes on later."""
    store = store_at(address)
    run(store.open())
    with holder_of_a_run(address) as process:
        process.send_signal(signal.SIGSTOP)
        assert [[]] * 10 == [run(store.adopt(["brooklet"])) for _ in range(10)]
        process.send_signal(signal.SIGCONT)
        say(process, "0")
    run(store.close())


def test_lock_files_of_dead_processes_are_swept(tmp_path: Path, run: Run) -> None:
    """Whoever opens a database removes what dead ones left, and nothing of the living."""
    path = tmp_path / "streamwell.db"
    with holder_of_a_run(str(path)), holder_of_a_run(str(tmp_path / "other.db")):
        pass
    store = SqliteStore(path)
    run(store.open())
    expected = ["other.db.lease-1", "streamwell.db.lease-2"]
    assert expected == sorted(file.name for file in tmp_path.glob("*.lease-*"))
    run(store.close())
    assert ["other.db.lease-1"] == [file.name for file in tmp_path.glob("*.lease-*")]


if __name__ == "__main__":
    hold_a_run(sys.argv[1])
