"""Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness import DEADLINE_S, START_TIMEOUT_S
from playwright.sync_api import Browser, ConsoleMessage, expect, sync_playwright
from playwright.sync_api import Page as Tab

_DEADLINE_MS = DEADLINE_S * 1000


class Page:
    """One page of a browser, as a person uses the chat page; `tab` is Playwright's own."""

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self._requested: list[str] = []
        self._complaints: list[str] = []
        tab.set_default_timeout(_DEADLINE_MS)
        tab.on("request", lambda request: self._requested.append(request.url))
        tab.on("pageerror", lambda error: self._complaints.append(str(error)))
        tab.on("console", self._hear)

    def open(self, url: str) -> None:
        """Load a page, and wait until it is there."""
        self.tab.goto(url)

    def evaluate(self, script: str) -> Any:  # noqa: ANN401 - whatever JSON can say
        """The value of an expression in the page; a promise is waited for."""
        return self.tab.evaluate(script)

    def sees(self, condition: str, timeout_s: float = DEADLINE_S) -> Any:  # noqa: ANN401
        """Wait until an expression is true, and return it."""
        # a function, made once: the page's policy forbids it to evaluate a text at each look
        looked = self.tab.wait_for_function(f"() => ({condition})", timeout=timeout_s * 1000)
        return looked.json_value()

    def has(self, text: str, within: str = "body") -> bool:
        """Wait until a text is there, hidden ones apart."""
        where = expect(self.tab.locator(within).first)
        where.to_contain_text(text, use_inner_text=True, timeout=_DEADLINE_MS)
        return True

    def click(self, name: str, within: str = "body") -> None:
        """Press the button that has this name, once it may be pressed."""
        self.tab.locator(within).get_by_role("button", name=name, exact=True).click()

    def type(self, text: str, into: str = "[aria-label=Message]") -> None:
        """Write a text where a person would, in place of what was there."""
        self.tab.locator(into).fill(text)

    def press(self, keys: str) -> None:
        """A key, with those that are held meanwhile: `Control+k`."""
        self.tab.keyboard.press(keys)

    def ask(self, text: str) -> None:
        """Send a message, once no dialog is before the page: that would have the keys."""
        self.sees("!document.querySelector('dialog')")
        self.type(text)
        self.press("Enter")

    def resize(self, width: int, height: int) -> None:
        self.tab.set_viewport_size({"width": width, "height": height})

    def requested(self) -> list[str]:
        """Addresses of all requests so far."""
        self.evaluate("0")  # the browser tells of what was before this
        return self._requested

    def complaints(self) -> list[str]:
        """Uncaught errors, and what the browser complains of: what a policy refused, too."""
        self.evaluate("0")
        return self._complaints

    def _hear(self, message: ConsoleMessage) -> None:
        is_pages_own = bool(message.args)  # what the browser itself logs is a text alone
        # of what some tests do to networks and servers
        is_load = message.text.startswith("Failed to load resource")
        if message.type in ("error", "warning") and not (is_pages_own or is_load):
            self._complaints.append(message.text)


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """A browser, until it is not needed any more; a context of it is a profile of its own.

    No asyncio loop can run in this thread meanwhile, since Playwright's own runs there.
    """
    # by its path: else Playwright looks for a build of its own, which `playwright install` fetches
    # from a host that is no package index; this one comes from the package manager
    program = shutil.which("chromium")
    assert program is not None, "these tests need Chromium: apt-get install chromium"
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(
            executable_path=program,
            chromium_sandbox=False,  # tests run as root, in containers
            args=["--disable-gpu"],  # where these tests run there is none
            timeout=START_TIMEOUT_S * 1000,
        ) as browser,
    ):
        yield browser
