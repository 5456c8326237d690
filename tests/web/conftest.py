"""A browser for the tests of what browsers do, and servers for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
sys.path.insert(0, str(Path(__file__).parent))

from browser import Page, opened_browser
from harness import ServerProcess, StartServer
from playwright.sync_api import Browser
from speaker import SpeakingServer, speaking_server


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for all tests here, which ends with them: others run asyncio in this thread."""
    with opened_browser() as browser:
        yield browser


@pytest.fixture
def open_tab(browser: Browser) -> Iterator[Callable[[], Page]]:
    """More tabs of one profile."""
    with browser.new_context() as profile:
        yield lambda: Page(profile.new_page())


@pytest.fixture
def page(open_tab: Callable[[], Page]) -> Page:
    """An empty page of a profile of its own."""
    return open_tab()


@pytest.fixture
def other_device(browser: Browser) -> Iterator[Page]:
    """An empty page that shares nothing with `page`."""
    with browser.new_context() as profile:
        yield Page(profile.new_page())


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
