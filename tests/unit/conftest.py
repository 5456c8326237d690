"""What the tests of SQLite files share: an event loop, and a database that is not there yet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlite_rig import Run

from streamwell.store.sqlite import SqliteStore


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
