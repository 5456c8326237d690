"""What the tests of the store's contract share: one event loop, and a database of each kind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres import Cluster, running_cluster
from stores import Run, Site, memory_site, postgres_site, sqlite_site

from streamwell.core.ports import Store


@pytest.fixture
def run() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL that runs until the tests end."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def url(cluster: Cluster) -> Iterator[str]:
    """The URL of an empty database, whose contents are gone after the test."""
    url = cluster.new_database()
    yield url
    cluster.empty_database(url)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """A database that nobody has opened."""
    if request.param == "memory":
        return memory_site()
    if request.param == "postgres":
        return postgres_site(request.getfixturevalue("cluster"), request.getfixturevalue("url"))
    return sqlite_site(tmp_path / "streamwell.db")


@pytest.fixture
def new_store(site: Site, run: Run) -> Iterator[Store]:
    """A store that has not been opened; closed after the test."""
    store = site.store()
    yield store
    run(store.close())


@pytest.fixture
def store(new_store: Store, run: Run) -> Store:
    """An open store, closed after the test."""
    run(new_store.open())
    return new_store
