"""Bad input: refused at once, in OpenAI's words, and nobody else notices."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest
from bad_requests import MESSAGES, TABLE, Bad
from harness import DEADLINE_S, HOST, ServerProcess, eventually

pytestmark = pytest.mark.slow

MAX_REFUSAL_S = 0.05
NEIGHBOUR = {"prompt": "Once upon a time", "seed": 3, "max_tokens": 60, "ignore_eos": True}


class Neighbour:
    """Streams the same request again and again, in a thread of its own."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.texts: list[str] = []
        self.failures: list[Exception] = []

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self.texts.append(self._server.stream_text(NEIGHBOUR))
        except Exception as failure:  # noqa: BLE001 - told by the test's own thread
            self.failures.append(failure)

    @contextmanager
    def streaming(self) -> Iterator[Neighbour]:
        self._thread.start()
        try:
            eventually(lambda: self._server.metrics()["requests_running"] > 0, "it streams")
            yield self
        finally:
            self._is_over.set()
            self._thread.join()


@pytest.fixture(scope="module")
def busy(brooklet: ServerProcess) -> Iterator[ServerProcess]:
    """A server that streams to somebody else all the time."""
    with Neighbour(brooklet).streaming():
        yield brooklet


def _send(server: ServerProcess, bad: Bad) -> httpx2.Response:
    headers = {"content-type": "application/json"}
    return server.client.request(bad.method, bad.path, content=bad.body, headers=headers)


@pytest.mark.parametrize("bad", TABLE, ids=[bad.name for bad in TABLE])
def test_bad_requests_are_refused(busy: ServerProcess, bad: Bad) -> None:
    """The status, code and field are right, and it takes less than 50 ms beside a stream."""

    def refused_soon() -> httpx2.Response | None:
        before_s = time.perf_counter()
        response = _send(busy, bad)
        return response if time.perf_counter() - before_s < MAX_REFUSAL_S else None

    # the fastest counts: others may have the cores for a while
    response = eventually(refused_soon, "it is refused soon")
    error = response.json()["error"]

    assert (bad.status, bad.code, bad.param) == (
        response.status_code,
        error["code"],
        error["param"],
    ), error
    assert "invalid_request_error" == error["type"]
    assert error["message"]
    assert response.headers["x-request-id"]


def test_a_neighbour_does_not_notice_bad_requests(brooklet: ServerProcess) -> None:
    """While every bad request there is comes in, another's streams are what they are alone."""
    alone = brooklet.text(NEIGHBOUR)
    neighbour = Neighbour(brooklet)
    with neighbour.streaming():
        for bad in TABLE:
            _send(brooklet, bad)

    assert [] == neighbour.failures
    assert {alone} == set(neighbour.texts)
    eventually(brooklet.is_idle, "no sequence and no block is left")
    assert "Traceback" not in brooklet.log()


def test_who_sends_too_much_is_told_so(brooklet: ServerProcess) -> None:
    """All of the body is sent before the answer is read, as simple clients do; none is reset."""
    body = b"x" * (12 << 20)
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((HOST, brooklet.port), timeout=DEADLINE_S) as connection:
        connection.sendall(head.encode() + body)
        with connection.makefile("rb") as answer:
            assert answer.read().startswith(b"HTTP/1.1 413 ")


def test_a_declared_length_is_refused_before_the_body(brooklet: ServerProcess) -> None:
    """A body that says it is too large is not even waited for, and its connection is closed."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4194305\r\n\r\n"
    with socket.create_connection((HOST, brooklet.port), timeout=DEADLINE_S) as connection:
        connection.sendall(head)
        with connection.makefile("rb") as answer:
            response = answer.read()

    assert response.startswith(b"HTTP/1.1 413 ")
    assert b"\r\nconnection: close\r\n" in response


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded"])
def test_a_body_must_be_declared_as_json(brooklet: ServerProcess, content_type: str) -> None:
    """What any web page may post to this machine without asking is not taken as a request."""
    content = json.dumps({"messages": MESSAGES}).encode()
    headers = {"content-type": content_type}
    response = brooklet.client.post("/v1/chat/completions", content=content, headers=headers)

    assert 400 == response.status_code
    assert "invalid_request_error" == response.json()["error"]["type"]


@pytest.mark.parametrize("stream", [True, False])
def test_unknown_fields_are_tolerated(brooklet: ServerProcess, stream: bool) -> None:
    """Fields that nobody knows change nothing, at the top, in messages and in options."""
    body = {
        "messages": [{"role": "user", "content": "Hello!", "mood": "sunny"}],
        "max_tokens": 4,
        "seed": 1,
        "stream": stream,
    }
    odd = {"frobnicate": {"deeply": [1, 2]}, "stream_options": {"sparkle": True}, "é": 1}
    plain = brooklet.post("/v1/chat/completions", body | {"messages": MESSAGES})
    response = brooklet.post("/v1/chat/completions", body | odd)

    assert 200 == response.status_code, response.text
    if not stream:
        assert plain.json()["choices"] == response.json()["choices"]


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [], "tool_choice": "none", "logprobs": False, "top_logprobs": 0},
        {"response_format": {"type": "text"}, "n": 1, "stop": [], "logit_bias": {}},
        {"stop": None},
        {"logit_bias": None},
        {"stop_token_ids": None, "n": None, "top_p": None, "presence_penalty": None},
        {"user": "u", "metadata": {"a": "b"}, "store": False, "service_tier": "auto"},
        {"temperature": None, "max_tokens": None, "seed": None, "stream_options": None},
        {"parallel_tool_calls": True, "reasoning_effort": None, "functions": None},
    ],
)
def test_known_fields_that_change_nothing_are_taken(
    brooklet: ServerProcess, fields: dict[str, object]
) -> None:
    """Clients send defaults, nulls and notes to themselves: all that asks for nothing is fine."""
    body = {"messages": MESSAGES, "max_completion_tokens": 2} | fields
    response = brooklet.post("/v1/chat/completions", body)

    assert 200 == response.status_code, response.text
