"""`streamwell db` on both databases; as a process where that is what matters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from stores import Run, a_delta, a_run, an_end

from streamwell.cli import main
from streamwell.store.migrate import HEAD_REVISION
from streamwell.store.postgres import PostgresStore
from streamwell.store.sql import SqlStore
from streamwell.store.sqlite import SqliteStore

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    # it is called without arguments here as by its entry point, which reads them itself
    pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens"),
]


@dataclass(frozen=True)
class Place:
    """A database, and the flag that names it."""

    store: SqlStore
    flag: tuple[str, str]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A database that nobody has opened."""
    if request.param == "sqlite":
        return Place(SqliteStore(tmp_path / "streamwell.db"), ("--data-dir", str(tmp_path)))
    url = request.getfixturevalue("url")
    return Place(PostgresStore(url), ("--database-url", url))


@pytest.fixture
def filled(place: Place, run: Run) -> Iterator[Place]:
    """A database that a server uses: two runs that ended long ago, and a live one."""
    run(place.store.open())
    place.store._clock = lambda: 1_000.0
    long = replace(a_delta("a", 0), text="word" * 25_000)
    run(place.store.commit([a_run("a"), a_run("b"), a_run("live")], [long]))
    run(place.store.commit([], [an_end("a", 1)]))
    run(place.store.commit([], [an_end("b", 0)]))
    yield place
    run(place.store.close())


Db = Callable[..., subprocess.CompletedProcess[str]]


def in_a_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `streamwell db`, with nothing from the environment that could set its flags."""
    environment = {key: os.environ[key] for key in os.environ if "STREAMWELL" not in key}
    command = [sys.executable, "-m", "streamwell", "db", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.fixture
def db(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Db:
    """The same command in this process, which saves its imports."""
    for key in [key for key in os.environ if "STREAMWELL" in key]:
        monkeypatch.delenv(key)

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["streamwell", "db", *arguments])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        return subprocess.CompletedProcess(sys.argv, code, *capsys.readouterr())

    return call


def test_upgrade_makes_the_tables(place: Place, run: Run, db: Db) -> None:
    """An empty database is ready afterwards; the revision is told, and again changes nothing."""
    for _ in range(2):
        result = db("upgrade", *place.flag)
        assert 0 == result.returncode, result.stderr
        assert f"The database has schema revision {HEAD_REVISION}.\n" == result.stdout
    run(place.store.open())
    assert run(place.store.run("a")) is None
    run(place.store.close())


def test_export_writes_every_run(filled: Place) -> None:
    """One line of JSON per run, by id: the run as it was accepted, and its events in order."""
    result = in_a_process("export", *filled.flag)
    assert 0 == result.returncode, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert ["a", "b", "live"] == [line["run"]["run_id"] for line in lines]
    assert [2, 1, 0] == [len(line["events"]) for line in lines]
    assert "brooklet" == lines[0]["run"]["model"]
    assert ["delta", "end"] == [event["kind"] for event in lines[0]["events"]]
    assert "word" * 25_000 == lines[0]["events"][0]["text"]


def test_export_writes_one_run_to_a_private_file(filled: Place, tmp_path: Path, db: Db) -> None:
    """What people wrote is in it, so only its owner may read it."""
    output = tmp_path / "runs.jsonl"
    result = db("export", *filled.flag, "--run", "b", "--output", str(output))
    assert (0, "", "") == (result.returncode, result.stdout, result.stderr)
    (line,) = output.read_text(encoding="utf-8").splitlines()
    assert "b" == json.loads(line)["run"]["run_id"]
    assert 0o600 == output.stat().st_mode & 0o777


def test_an_unknown_run_leaves_the_file_alone(filled: Place, tmp_path: Path, db: Db) -> None:
    """A wrong id is an error, and costs nobody an earlier export."""
    output = tmp_path / "runs.jsonl"
    output.write_text("precious\n", encoding="utf-8")
    result = db("export", *filled.flag, "--run", "nobody", "--output", str(output))
    assert (2, "streamwell: No run with this id.\n") == (result.returncode, result.stderr)
    assert "precious\n" == output.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--older-than-h", "1"), 2),
        (("--older-than-h", "1000000"), 0),
        (("--max-mib", "0"), 2),
        (("--max-mib", "0.05"), 1),
        (("--max-mib", "1", "--older-than-h", "1"), 2),
    ],
)
def test_prune_deletes_ended_runs(
    filled: Place, run: Run, db: Db, flags: tuple[str, ...], expected: int
) -> None:
    """By age, by size, or by both, while a server runs; what it drives stays."""
    result = db("prune", *filled.flag, *flags)
    assert (0, f"{expected} runs were deleted.\n") == (result.returncode, result.stdout)
    left = [run_id for run_id in "ab" if run(filled.store.run(run_id))]
    assert ["a", "b"][expected:] == left
    run(filled.store.commit([], [an_end("live", 0)]))


def test_prune_wants_to_know_what(tmp_path: Path, db: Db) -> None:
    """Nothing is deleted by default."""
    result = db("prune", "--data-dir", str(tmp_path))
    assert 2 == result.returncode
    assert "--older-than-h" in result.stderr


@pytest.mark.parametrize("command", [("export",), ("prune", "--max-mib", "1")], ids=" ".join)
def test_a_folder_without_a_database(tmp_path: Path, db: Db, command: tuple[str, ...]) -> None:
    """Looking into the wrong folder is an error and makes no database there."""
    result = db(*command, "--data-dir", str(tmp_path))
    assert 2 == result.returncode
    assert str(tmp_path) in result.stderr
    assert [] == list(tmp_path.iterdir())
