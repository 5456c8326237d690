"""A browser for the tests of what browsers do, and servers for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

from browser import Browser, Page, opened_browser
from harness import ServerProcess, StartServer
from speaker import SpeakingServer, speaking_server


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests; each of them has a profile of its own."""
    with opened_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def open_tab(browser: Browser) -> Iterator[Callable[[], Page]]:
    """More tabs of one profile."""
    with ExitStack() as opened:
        profile = opened.enter_context(browser.profile())
        yield lambda: opened.enter_context(browser.page(profile))


@pytest.fixture
def page(open_tab: Callable[[], Page]) -> Page:
    """An empty page of a profile of its own."""
    return open_tab()


@pytest.fixture
def other_device(browser: Browser) -> Iterator[Page]:
    """An empty page that shares nothing with `page`."""
    with browser.profile() as profile, browser.page(profile) as page:
        yield page


@pytest.fixture(scope="session")
def server() -> Iterator[SpeakingServer]:
    """A server whose model says what it is told to; it is shared, and so are its chats."""
    with speaking_server() as server:
        yield server


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
