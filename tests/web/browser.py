"""A headless Chromium, driven through its DevTools protocol."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from harness import DEADLINE_S, HOST, eventually
from websockets.sync.client import ClientConnection, connect

_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests run as root, in containers
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--no-default-browser-check",
    "--remote-debugging-port=0",
)


class Page:
    """One page of a browser."""

    def __init__(self, devtools: ClientConnection) -> None:
        self._devtools = devtools
        self._ids = itertools.count()

    def open(self, url: str) -> None:
        """Load a page, and wait until it is there."""
        assert "errorText" not in self._call("Page.navigate", url=url)
        state = "document.readyState == 'complete' && location.href"
        eventually(lambda: self.evaluate(state) == url, f"{url} is loaded")

    def evaluate(self, script: str) -> Any:  # noqa: ANN401 - whatever JSON can say
        """The value of an expression in the page."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def _call(self, method: str, **params: object) -> dict[str, Any]:
        number = next(self._ids)
        self._devtools.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._devtools.recv(DEADLINE_S))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result


@contextmanager
def opened_page(profile: Path) -> Iterator[Page]:
    """The page of a new browser, which ends with it."""
    program = shutil.which("chromium")
    assert program is not None, "these tests need Chromium: apt-get install chromium"
    command = [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
        try:
            url = eventually(lambda: _devtools_url(profile), "the browser is up")
            with connect(url, compression=None, proxy=None, max_size=None) as devtools:
                yield Page(devtools)
        finally:
            browser.terminate()


def _devtools_url(profile: Path) -> str:
    """Where the first page can be driven; empty as long as there is none."""
    port_file = profile / "DevToolsActivePort"
    if not port_file.exists() or not (lines := port_file.read_text().splitlines()):
        return ""
    try:
        targets = httpx2.get(f"http://{HOST}:{lines[0]}/json/list", timeout=DEADLINE_S).json()
    except httpx2.TransportError:
        return ""
    pages = [target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page"]
    return pages[0] if pages else ""
