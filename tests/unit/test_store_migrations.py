"""How a database comes to its schema: new, older, newer, or of somebody else."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_rig import Run

from streamwell.core.errors import StoreFailed
from streamwell.core.types import (
    EventKind,
    FinishReason,
    RunEvent,
    RunKind,
    RunSpec,
    RunTerms,
    SamplingParams,
    Usage,
)
from streamwell.store.migrate import HEAD_REVISION, migrate, upgrade
from streamwell.store.schema import METADATA
from streamwell.store.sqlite import SqliteStore, _migration_engine

#: What `sqlite3` dumped of a file that Streamwell wrote at revision 0001, with two runs.
DUMP_0001 = Path(__file__).parent / "data" / "store_0001.sql"


def a_run(run_id: str, created_s: int) -> RunSpec:
    return RunSpec(
        run_id=run_id,
        kind=RunKind.CHAT,
        tenant="tenant-1",
        model="brooklet",
        created_s=created_s,
        prompts=((1, 2, 3), (4,)),
        num_choices=2,
        sampling=SamplingParams(max_tokens=16, seed=7, logit_bias=((7, -1.5),)),
        stop=("\n\n",),
        terms=RunTerms(),
    )


@pytest.fixture
def old_path(path: Path) -> Path:
    """A file of revision 0001."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(DUMP_0001.read_text(encoding="utf-8"))
    return path


def schema_of(path: Path) -> dict[str, object]:
    """Columns, keys and indexes of each table; the text of a table tells how it came about."""
    with closing(sqlite3.connect(path)) as connection:
        statement = "SELECT name, type, sql FROM sqlite_master ORDER BY name"
        return {
            name: sql if kind == "index" else columns_and_keys(connection, name)
            for name, kind, sql in connection.execute(statement).fetchall()
        }


def columns_and_keys(connection: sqlite3.Connection, table: str) -> list[object]:
    functions = ("table_xinfo", "foreign_key_list")
    selects = [f"SELECT * FROM pragma_{function}(?)" for function in functions]  # noqa: S608
    answers = [set(connection.execute(select, [table]).fetchall()) for select in selects]
    options = "SELECT wr, strict FROM pragma_table_list WHERE name = ?"
    return [*answers, connection.execute(options, [table]).fetchall()]


def revision_of(path: Path) -> object:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT version_num FROM alembic_version").fetchone()[0]


def open_and_close(path: Path, run: Run) -> None:
    run(open_once(path))


async def open_once(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()


def test_head_revision_is_the_newest_migration() -> None:
    """The constant that lets `open` skip Alembic agrees with Alembic."""
    from alembic.script import ScriptDirectory

    import streamwell.store.migrations as migrations

    directory = ScriptDirectory(str(Path(migrations.__file__).parent))
    assert HEAD_REVISION == directory.get_current_head()


def test_a_new_file_is_stamped_with_the_head_revision(path: Path, run: Run) -> None:
    """A file made without Alembic says which revision it has."""
    open_and_close(path, run)
    assert HEAD_REVISION == revision_of(path)


def test_the_migrations_make_the_schema_of_a_new_file(tmp_path: Path, run: Run) -> None:
    """Migrating from nothing and creating at once give the same tables and indexes."""
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
    run(store.commit([a_run("a", 1)], []))
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


def test_creating_the_tables_is_one_transaction(path: Path) -> None:
    """A process that dies while it creates the tables leaves none, so that the next can start."""

    def create_and_die() -> None:
        with _migration_engine(path).begin() as connection:
            migrate(connection)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create_and_die()
    assert {} == schema_of(path)


def test_a_file_of_0001_keeps_its_runs_and_events(old_path: Path, run: Run) -> None:
    """Runs that an older Streamwell wrote are read as they were; what is new has its default."""
    store = SqliteStore(old_path)
    run(store.open())
    specs = [run(store.run(run_id)) for run_id in ("ended", "live")]
    events = run(store.events("ended"))
    run(store.close())
    assert [a_run("ended", 1_000), a_run("live", 1_001)] == specs
    assert [
        RunEvent(run_id="ended", seq=0, kind=EventKind.START),
        RunEvent(
            run_id="ended", seq=1, kind=EventKind.DELTA, token_ids=(5, 151_643), text=" word\0"
        ),
        RunEvent(run_id="ended", seq=2, kind=EventKind.FINISH, finish_reason=FinishReason.STOP),
        RunEvent(run_id="ended", seq=3, kind=EventKind.END, usage=Usage(4, 2, 1)),
    ] == events


def test_a_file_of_0001_gets_the_schema_of_a_new_one(
    old_path: Path, tmp_path: Path, run: Run
) -> None:
    """After the upgrade nothing tells an old file from a new one."""
    open_and_close(old_path, run)
    open_and_close(tmp_path / "new.db", run)
    assert schema_of(tmp_path / "new.db") == schema_of(old_path)
    assert HEAD_REVISION == revision_of(old_path)


def test_live_runs_of_0001_are_adopted(old_path: Path, run: Run) -> None:
    """Leases are younger than these runs; they count as those of a dead server."""
    store = SqliteStore(old_path)
    run(store.open())
    assert [a_run("live", 1_001)] == run(store.adopt(["brooklet"]))
    run(store.commit([], [RunEvent(run_id="live", seq=2, kind=EventKind.END)]))
    run(store.close())


def test_runs_of_0001_get_old(old_path: Path, run: Run) -> None:
    """An old run ended when it was created, for all we know, and its bytes are counted."""
    store = SqliteStore(old_path)
    run(store.open())
    assert 0 == run(
        store.delete_old(ended_before_s=1_000, unstored_before_s=9e9, stored_before_s=1_000)
    )
    assert 0 == run(store.delete_oldest(max_bytes=2_000))
    assert 1 == run(store.delete_oldest(max_bytes=700))
    assert 1 == run(
        store.delete_old(ended_before_s=1_002, unstored_before_s=0, stored_before_s=1_002)
    )
    run(store.close())


def test_runs_of_0001_are_folded(old_path: Path, run: Run) -> None:
    """What an older Streamwell left behind gets small as well."""
    store = SqliteStore(old_path)
    run(store.open())
    events = run(store.events("ended"))
    assert [1, 0] == [run(store.fold(ended_before_s=9e9)) for _ in range(2)]
    assert events == run(store.events("ended"))
    run(store.close())
    with closing(sqlite3.connect(old_path)) as connection:
        counted = connection.execute("SELECT count(*) FROM run_events WHERE run_id = 'ended'")
        assert (1,) == counted.fetchone()


def open_twice(path: Path) -> None:
    """In a child process: open a new file, then the same file again; tell if Alembic came in."""
    for _ in range(2):
        asyncio.run(open_once(path))
    print("alembic" in sys.modules)  # noqa: T201


@pytest.mark.slow
def test_opening_does_not_import_alembic(path: Path) -> None:
    """Neither a new file nor one at the head revision pays for the import of Alembic."""
    answer = subprocess.run(
        [sys.executable, __file__, str(path)], capture_output=True, text=True, check=True
    )
    assert "False\n" == answer.stdout


if __name__ == "__main__":
    open_twice(Path(sys.argv[1]))
