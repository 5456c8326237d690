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
    "--window-size=1280,800",
    "--remote-debugging-port=0",
)
#: What keys are to the browser: code, number, and the text that they type.
_KEYS = {"Enter": ("Enter", 13, "\r"), "Escape": ("Escape", 27, ""), "Tab": ("Tab", 9, "")}
_CONTROL, _SHIFT = 2, 8
#: Of connections to the browser, which nobody reads while nothing is asked.
_OPTIONS: dict[str, Any] = {
    "compression": None,
    "proxy": None,
    "max_size": None,
    "ping_interval": None,
    "close_timeout": 1,
}


class _Devtools:
    """One connection to the browser: calls, and what it tells in between."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._ids = itertools.count()
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, **params: object) -> dict[str, Any]:
        number = next(self._ids)
        self._connection.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._connection.recv(DEADLINE_S))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)


class Page:
    """One page of a browser."""

    def __init__(self, connection: ClientConnection) -> None:
        self._devtools = _Devtools(connection)
        self.call = self._devtools.call
        for domain in ("Network", "Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def open(self, url: str) -> None:
        """Load a page, and wait until it is there."""
        assert "errorText" not in self.call("Page.navigate", url=url)
        state = "document.readyState == 'complete' && location.href"
        eventually(lambda: self.evaluate(state) == url, f"{url} is loaded")

    def evaluate(self, script: str) -> Any:  # noqa: ANN401 - whatever JSON can say
        """The value of an expression in the page; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def sees(self, condition: str, timeout_s: float = DEADLINE_S) -> Any:  # noqa: ANN401
        """Wait until an expression is true, and return it; an element is `True`."""
        script = f"(value => value instanceof Node || value)({condition})"
        return eventually(lambda: self.evaluate(script), condition, timeout_s)

    def has(self, text: str, within: str = "body") -> bool:
        """Wait until a text is there, hidden ones apart."""
        where = f"document.querySelector({json.dumps(within)})"
        self.sees(f"{where} && {where}.innerText.includes({json.dumps(text)})")
        return True

    def click(self, name: str, within: str = "body") -> None:
        """Press what has this name, once it is there and may be pressed."""
        find = f"""[...document.querySelector({json.dumps(within)})?.querySelectorAll(
            'button, a, summary, [role=button]') ?? []].findLast(element => !element.disabled
            && element.checkVisibility()
            && [element.ariaLabel, element.innerText.trim()].includes({json.dumps(name)}))"""
        self.sees(f"(found => {{ found?.click(); return Boolean(found); }})({find})")

    def type(self, text: str, into: str = "[aria-label=Message]") -> None:
        """Write a text where a person would, in place of what was there."""
        self.sees(f"document.querySelector({json.dumps(into)})?.checkVisibility()")
        self.evaluate(
            f"{{ const e = document.querySelector({json.dumps(into)}); e.focus(); e.select(); }}"
        )
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, control: bool = False, shift: bool = False) -> None:
        """A key, down and up."""
        code, number, text = _KEYS.get(key) or (f"Key{key.upper()}", ord(key.upper()), "")
        modifiers = _CONTROL * control + _SHIFT * shift
        about = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers}
        down = "keyDown" if text and not control else "rawKeyDown"
        self.call("Input.dispatchKeyEvent", type=down, **about, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def ask(self, text: str) -> None:
        """Send a message."""
        self.type(text)
        self.press("Enter")

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def events(self, method: str) -> list[dict[str, Any]]:
        """What the browser told so far about something."""
        self.evaluate("0")  # it tells of what was before this
        return [event["params"] for event in self._devtools.events if event["method"] == method]

    def requested(self) -> list[str]:
        """Addresses of all requests so far."""
        return [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]

    def complaints(self) -> list[str]:
        """Uncaught errors, and what a policy refused."""
        thrown = [
            event["exceptionDetails"].get("exception", {}).get("description", "?")
            for event in self.events("Runtime.exceptionThrown")
        ]
        logged = [event["entry"] for event in self.events("Log.entryAdded")]
        return thrown + [entry["text"] for entry in logged if entry["source"] == "security"]


class Browser:
    """A browser; each of its profiles knows nothing of the others."""

    def __init__(self, address: str, connection: ClientConnection) -> None:
        self._address = address
        self._call = _Devtools(connection).call

    @contextmanager
    def profile(self) -> Iterator[str]:
        """A new profile: storage of its own, as on another device."""
        context = self._call("Target.createBrowserContext")["browserContextId"]
        yield context
        self._call("Target.disposeBrowserContext", browserContextId=context)

    @contextmanager
    def page(self, profile: str) -> Iterator[Page]:
        """A new tab."""
        created = self._call("Target.createTarget", url="about:blank", browserContextId=profile)
        address = f"{self._address}/devtools/page/{created['targetId']}"
        with connect(address, **_OPTIONS) as connection:
            yield Page(connection)
            self._call("Target.closeTarget", targetId=created["targetId"])


@contextmanager
def opened_browser(folder: Path) -> Iterator[Browser]:
    """A browser, until it is not needed any more."""
    program = shutil.which("chromium")
    assert program is not None, "these tests need Chromium: apt-get install chromium"
    command = [program, *_FLAGS, f"--user-data-dir={folder}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            port, path = eventually(lambda: _place(folder), "the browser is up")
            address = f"ws://{HOST}:{port}"
            with connect(address + path, **_OPTIONS) as connection:
                yield Browser(address, connection)
        finally:
            process.terminate()


def _place(folder: Path) -> tuple[int, str] | None:
    """Port and path of what drives a browser, once it is up."""
    file = folder / "DevToolsActivePort"
    lines = file.read_text().splitlines() if file.exists() else []
    return (int(lines[0]), lines[1]) if len(lines) == 2 else None
