"""What is true of `PostgresStore` alone: its settings, lost connections, and its silence."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from postgres import Cluster, name_of, running_cluster
from sqlalchemy import Connection, create_engine, text
from stores import Run, a_delta, a_run, an_end, ids

from streamwell.core.errors import LeaseLost, StoreFailed
from streamwell.store.database import driver_row
from streamwell.store.migrate import HEAD_REVISION, upgrade
from streamwell.store.postgres import PostgresStore
from streamwell.store.schema import METADATA


@pytest.fixture
def store(url: str, run: Run) -> Iterator[PostgresStore]:
    """An open store, closed after the test."""
    store = PostgresStore(url)
    run(store.open())
    yield store
    run(store.close())


async def ask(store: PostgresStore, statement: str) -> object:
    """What the writer's connection answers."""

    def execute(connection: Connection) -> object:
        row = driver_row(connection, statement)
        return row and row[0]

    return await store._write(execute)


@pytest.mark.parametrize(("synchronous_commit", "expected"), [(True, "on"), (False, "off")])
def test_settings(url: str, run: Run, synchronous_commit: bool, expected: str) -> None:
    """The asked-for durability is in force, and nothing is waited for without end."""
    store = PostgresStore(url, synchronous_commit=synchronous_commit)
    run(store.open())
    names = ("synchronous_commit", "statement_timeout", "lock_timeout")
    values = [run(ask(store, f"SHOW {name}")) for name in names]
    run(store.close())
    assert [expected, "1min", "20s"] == values


def test_the_migrations_make_the_tables_in_code(url: str) -> None:
    """Migrating from nothing gives what `METADATA` says; Alembic finds no difference."""
    engine = create_engine(url)
    with engine.begin() as connection:
        upgrade(connection, None)
        assert [] == compare_metadata(MigrationContext.configure(connection), METADATA)
    engine.dispose()


def test_an_older_database_is_migrated(url: str, run: Run) -> None:
    """A database whose revision is behind gets the missing tables when it is opened."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
    engine.dispose()
    store = PostgresStore(url)
    run(store.open())
    run(store.commit([a_run("a")], []))
    assert HEAD_REVISION == run(ask(store, "SELECT version_num FROM alembic_version"))
    run(store.close())


def end_all_sessions(cluster: Cluster, url: str) -> None:
    """Cut every connection to the database, and wait until they are gone."""
    statement = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s"
    assert cluster.execute(statement, parameters=(name_of(url),))


def test_lost_connections_are_replaced(
    store: PostgresStore, cluster: Cluster, url: str, run: Run
) -> None:
    """When connections were cut while nothing happened, nobody notices; the lease is held again."""
    run(store.commit([a_run("a")], []))
    for seq in range(3):
        end_all_sessions(cluster, url)
        run(store.commit([], [a_delta("a", seq)]))
        assert [a_delta("a", number) for number in range(seq + 1)] == run(store.events("a"))
    other = PostgresStore(url)
    run(other.open())
    assert [] == run(other.adopt(["brooklet"]))
    run(other.close())


def test_nothing_is_written_behind_what_a_crash_has_lost(
    store: PostgresStore, cluster: Cluster, url: str, run: Run
) -> None:
    """Without the last commit the lease is lost, too; with a new one all goes on from there."""
    run(store.commit([a_run("a")], [a_delta("a", 0)]))
    run(store.commit([], [a_delta("a", 1)]))
    forgetting = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with forgetting.begin() as connection:
        connection.execute(text("DELETE FROM run_events WHERE seq = 1"))
    forgetting.dispose()
    end_all_sessions(cluster, url)
    for _ in range(2):
        with pytest.raises(LeaseLost):
            run(store.commit([], [a_delta("a", 2)]))
    assert [a_delta("a", 0)] == run(store.events("a"))

    run(store.close())
    run(store.open())
    assert ["a"] == ids(run(store.adopt(["brooklet"])))
    run(store.commit([], [a_delta("a", 1)]))
    end_all_sessions(cluster, url)
    run(store.commit([], [a_delta("a", 2)]))


def test_what_was_deleted_is_not_lost(
    store: PostgresStore, cluster: Cluster, url: str, run: Run
) -> None:
    """Runs that have ended may go at any time, whoever deletes them."""
    run(store.commit([a_run("a"), a_run("b")], [a_delta("a", 0), an_end("b", 0)]))
    run(store.delete_run("b"))
    end_all_sessions(cluster, url)
    run(store.commit([], [a_delta("a", 1)]))


def test_closing_after_a_loss_is_no_error(
    store: PostgresStore, cluster: Cluster, url: str, run: Run
) -> None:
    """A connection that is lost has nothing to give back."""
    end_all_sessions(cluster, url)
    run(store.close())
    run(store.open())
    run(store.commit([a_run("a")], []))


def test_a_commit_that_is_overtaken_writes_nothing(
    store: PostgresStore, cluster: Cluster, url: str, run: Run
) -> None:
    """Its connection is cut and its runs are adopted in the middle of it: it hears `LeaseLost`."""
    other = PostgresStore(url)

    async def overtake() -> None:
        loop = asyncio.get_running_loop()
        await other.open()
        await store.commit([a_run("a")], [])
        adopted: list[str] = []

        def write(connection: Connection) -> None:
            store._own_lease(connection)
            store._insert_events(connection, [])
            cluster.end_session_of_lease(url, store._lease_id or 0)
            adopting = asyncio.run_coroutine_threadsafe(other.adopt(["brooklet"]), loop)
            adopted.extend(ids(adopting.result()))
            store._own_lease(connection)

        with pytest.raises(LeaseLost):
            await store._write(write)
        assert ["a"] == adopted
        await other.commit([], [a_delta("a", 0), an_end("a", 1)])
        await other.close()

    run(overtake())


@pytest.mark.slow
def test_the_store_works_again_after_its_server(run: Run) -> None:
    """While PostgreSQL is down every call is refused; when it is up again all goes on."""
    with running_cluster() as cluster:
        store = PostgresStore(cluster.new_database())
        run(store.open())
        run(store.commit([a_run("a")], [a_delta("a", 0)]))
        cluster.stop()
        for _ in range(2):
            with pytest.raises(StoreFailed, match="database failed"):
                run(store.commit([], [a_delta("a", 1)]))
            with pytest.raises(StoreFailed, match="database failed"):
                run(store.run("a"))
        cluster.start()
        run(store.commit([], [a_delta("a", 1)]))
        assert [a_delta("a", 0), a_delta("a", 1)] == run(store.events("a"))
        assert [] == run(store.adopt(["brooklet"]))
        run(store.close())


def test_an_error_does_not_tell_what_was_written(store: PostgresStore, run: Run) -> None:
    """Errors reach logs; prompts and answers must not."""
    secret = a_delta("hunter2", 0)
    run(store.commit([a_run("hunter2")], [secret]))
    for events in ([secret], [a_delta("a", 0)]):
        with pytest.raises(ValueError, match="already") as raised:
            run(store.commit([], events))
        assert "word" not in "".join(traceback.format_exception(raised.value))


WRONG_URLS = {
    "port": ("postgresql://me:hunter2@127.0.0.1:1/db", "failed"),
    "host": ("postgresql://me:hunter2@nowhere.invalid/db", "failed"),
    "unescaped": ("postgresql://me:hun@ter2@127.0.0.1:1/db", "%40"),
    "port with letters": ("postgresql://me:pass@127.0.0.1:hunter2/db", "understood"),
    "no URL": ("hunter2", "understood"),
    "another database": ("mysql://me:hunter2@127.0.0.1/db", "mysql"),
    "option": ("postgresql://me:hunter2@127.0.0.1:1/db?wrong=1", "wrong"),
}


@pytest.mark.parametrize(("url", "match"), WRONG_URLS.values(), ids=list(WRONG_URLS))
def test_no_error_tells_the_password(run: Run, url: str, match: str) -> None:
    """Whatever is wrong with the URL, the message helps and keeps the password."""
    with pytest.raises(StoreFailed, match=match) as raised:
        run(PostgresStore(url).open())
    told = "".join(traceback.format_exception(raised.value, limit=0))
    assert "hunter2" not in told
    assert "ter2" not in told


def test_a_database_of_another_program_is_refused(cluster: Cluster, url: str, run: Run) -> None:
    """Pointing Streamwell at the wrong database must not change it."""
    cluster.execute("CREATE TABLE songs (title TEXT)", name_of(url))
    with pytest.raises(StoreFailed, match="another program"):
        run(PostgresStore(url).open())
