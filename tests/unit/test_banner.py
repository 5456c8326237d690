"""What is said when a server listens, and when it cannot."""

from __future__ import annotations

import json
import queue
import shlex
import socket
import webbrowser

import pytest

from streamwell.cli.banner import address, banner, greet
from streamwell.cli.serve import _listen
from streamwell.core.errors import StreamwellError
from streamwell.settings import Settings


@pytest.mark.parametrize(
    ("host", "base"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://localhost:8000"),
        ("::", "http://localhost:8000"),
        ("::1", "http://[::1]:8000"),
    ],
)
def test_the_address_can_be_followed(host: str, base: str) -> None:
    """It is one of this machine, also where the server listens on all of them."""
    assert base == address(Settings(host=host, api_key=("sk-one",)))


def test_the_banner_has_a_command_to_copy() -> None:
    """Page, API, and from the first to the last line of the block a command as shells read it."""
    facts, command = banner(Settings(models=("brooklet",))).rstrip("\n").split("\n\n")

    assert "  page   http://127.0.0.1:8000\n" in facts
    assert "  api    http://127.0.0.1:8000/v1\n" in facts
    words = shlex.split(command)
    assert ["curl", "-N", "http://127.0.0.1:8000/v1/chat/completions"] == words[:3]
    assert json.loads(words[-1])["stream"]


def test_the_banner_shows_no_key() -> None:
    """The command takes it from the environment."""
    text = banner(Settings(api_key=("sk-secret",)))

    assert "sk-secret" not in text
    assert "Bearer $STREAMWELL_API_KEY" in text


def test_the_page_is_opened_if_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a thread of its own; without `--open` never."""
    opened = queue.Queue[str]()
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.put(url) or True)

    greet(Settings())
    greet(Settings(open=True, port=8123))
    assert "http://127.0.0.1:8123" == opened.get(timeout=30)
    assert opened.empty()


def test_the_next_free_port_is_told() -> None:
    """Who finds a port taken reads which one is not."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StreamwellError, match=r"--port [0-9]+ is free") as refused:
            _listen("127.0.0.1", port)

    free = int(str(refused.value).split("--port ")[1].split()[0])
    assert port < free
    _listen("127.0.0.1", free).close()
