"""A browser for the tests of what browsers do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

from browser import Page, opened_page
from harness import ServerProcess, StartServer


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """An empty page of a browser of its own."""
    with opened_page(tmp_path / "profile") as page:
        yield page


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start servers for one test alone; they are not waited for."""
    with ExitStack() as servers:

        def start(*flags: str, **places: object) -> ServerProcess:
            folder = tmp_path / f"server{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            flags = ("--log-level", "warning", *flags)
            return servers.enter_context(closing(ServerProcess(folder, *flags, **places)))  # type: ignore[arg-type]

        yield start
