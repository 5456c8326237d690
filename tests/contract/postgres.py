"""A PostgreSQL cluster of the tests' own, from the programs that the package `pgserver` brings.

Its Python is not imported: as root it would make a system user and open folders to everybody.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import psycopg

#: PostgreSQL refuses to run as root; this user, which every system has, runs it then.
_NOBODY = 65534

_OPTIONS = "-c listen_addresses= -c fsync=off -c max_connections=50 -c shared_buffers=16MB"


class Cluster:
    """A running PostgreSQL in a folder, reachable through a socket there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        self._emptied: list[str] = []

    def new_database(self) -> str:
        """The URL of an empty database."""
        if self._emptied:
            return self._emptied.pop()
        name = f"streamwell_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return f"postgresql+psycopg://postgres@/{name}?host={self._folder}"

    def empty_database(self, url: str) -> None:
        """End all sessions of a database and leave nothing in it, for the next who wants one.

        To create another one takes longer.
        """
        self.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s",
            parameters=(name_of(url),),
        )
        self.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public", name_of(url))
        self._emptied.append(url)

    def execute(
        self, statement: str, database: str = "postgres", parameters: tuple[object, ...] = ()
    ) -> list[tuple[object, ...]]:
        """What one statement answers, from outside of any store."""
        conninfo = f"host={self._folder} user=postgres dbname={database}"
        with psycopg.connect(conninfo, autocommit=True) as connection:
            cursor = connection.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    def end_session_of_lease(self, url: str, lease_id: int) -> None:
        """Cut the connection that gives proof of life for a lease, and wait until it is gone."""
        statement = (
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' "
            "AND objid = %s AND database = "
            "(SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        (ended,) = self.execute(statement, name_of(url), (lease_id,))
        assert (True,) == ended

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = f"{_OPTIONS} -c unix_socket_directories={self._folder}"
        log = str(self._folder / "log")
        self._run("pg_ctl", "start", "-w", "-D", str(self._data), "-l", log, "-o", options)

    def stop(self) -> None:
        """Stop it without asking those who are connected."""
        self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", str(self._data))

    def create(self) -> None:
        """Make the files of a new cluster."""
        if os.geteuid() == 0:
            os.chown(self._folder, _NOBODY, _NOBODY)
        self._run(
            *("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "--no-sync"),
            *("-E", "UTF8", "--locale", "C.UTF-8"),
        )

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(_folder_of_programs() / program), *arguments]
        user = _NOBODY if os.geteuid() == 0 else None
        # Into a file: the server inherits the output, and a pipe would never end.
        with (self._folder / "output").open("a+", encoding="utf-8") as output:
            result = subprocess.run(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                user=user, cwd=self._folder, check=False, timeout=120,
            )  # fmt: skip
            output.seek(0)
            assert 0 == result.returncode, output.read()


def name_of(url: str) -> str:
    """The database that a URL of `new_database` names."""
    return url.partition("@/")[2].partition("?")[0]


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A new cluster, which is gone afterwards."""
    # Not in pytest's folder, which other users cannot enter, and whose name may be too long.
    folder = Path(tempfile.mkdtemp(prefix="streamwell-pg-"))
    cluster = Cluster(folder)
    try:
        cluster.create()
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _folder_of_programs() -> Path:
    spec = find_spec("pgserver")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "pginstall" / "bin"
    program = shutil.which("initdb")
    assert program, "PostgreSQL is needed: pip install pgserver, or put initdb on the PATH"
    return Path(program).resolve().parent
