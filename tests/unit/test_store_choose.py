"""Which store a server gets for its settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamwell.core.errors import StoreFailed
from streamwell.store.choose import Durability, make_store
from streamwell.store.memory import MemoryStore
from streamwell.store.postgres import PostgresStore
from streamwell.store.sqlite import SqliteStore

URL = "postgresql://me:hunter2@127.0.0.1/db"


@pytest.mark.parametrize(
    ("durability", "database_url", "expected", "is_durable"),
    [
        ("memory", None, MemoryStore, False),
        ("memory", URL, MemoryStore, False),
        ("process", None, SqliteStore, True),
        ("disk", None, SqliteStore, True),
        ("process", URL, PostgresStore, True),
        ("disk", URL, PostgresStore, True),
    ],
)
def test_the_store_fits_the_settings(
    tmp_path: Path,
    durability: Durability,
    database_url: str | None,
    expected: type[object],
    is_durable: bool,
) -> None:
    """In memory if nothing is to last; else in PostgreSQL if there is a URL, else in SQLite."""
    store = make_store(durability, tmp_path, database_url)
    assert expected is type(store)
    assert is_durable is store.is_durable
    assert [] == list(tmp_path.iterdir())


def test_another_url_is_refused(tmp_path: Path) -> None:
    """Only PostgreSQL has a URL."""
    with pytest.raises(StoreFailed, match="postgresql"):
        make_store("disk", tmp_path, "mysql://me@127.0.0.1/db")


PROGRAM = """
import sys
from pathlib import Path
if sys.argv[1] == "missing":
    sys.modules["psycopg"] = None
from streamwell.core.errors import StoreFailed
from streamwell.store.choose import make_store
make_store("disk", Path("."), None)
print("psycopg" in sys.modules and sys.modules["psycopg"] is not None)
try:
    make_store("disk", Path("."), "postgresql://127.0.0.1/db")
except StoreFailed as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("driver", "expected"), [("there", "False\n"), ("missing", "streamwell[postgres]")]
)
def test_the_driver_is_imported_only_if_wanted(driver: str, expected: str) -> None:
    """SQLite's users need no psycopg; who wants PostgreSQL without it is told what to install."""
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, driver], capture_output=True, text=True, check=True
    )
    assert answer.stdout.startswith("False\n")
    assert expected in answer.stdout
