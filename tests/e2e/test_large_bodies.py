"""Bodies just under the limit: refused in short time, and nobody else waits meanwhile."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import httpx2
import pytest
from harness import DEADLINE_S, HOST, ServerProcess, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

#: Parsing so much JSON takes a moment on any machine; these are far above it and far below harm.
#: The best of so many tries counts: others may have the cores for a while.
MAX_REFUSAL_S = 6.0
MAX_WAIT_S = 2.5
NUM_TRIES = 3
SIZE = (4 << 20) - 200

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
_USER = b'{"messages": [{"role": "user", "content": '
LARGE = {
    "a long text": (TEXT, b'{"prompt": "' + b"word " * (SIZE // 5) + b'"}', "prompt"),
    "one long word": (TEXT, b'{"prompt": "' + b"x" * SIZE + b'"}', "prompt"),
    "a long message": (CHAT, _USER + b'"' + b"word " * (SIZE // 5) + b'"}]}', "messages"),
    "many ids": (TEXT, b'{"prompt": [' + b"1," * (SIZE // 2) + b"1]}", "prompt"),
    "many prompts": (TEXT, b'{"prompt": [' + b'"a",' * (SIZE // 4) + b'"a"]}', "prompt"),
    "many lists of ids": (TEXT, b'{"prompt": [' + b"[1]," * (SIZE // 4) + b"[1]]}", "prompt"),
    "too many messages": (
        CHAT,
        b'{"messages": [' + b",".join([b'{"role": "user", "content": "a"}'] * 2049) + b"]}",
        "messages",
    ),
    "many empty messages": (CHAT, b'{"messages": [' + b"{}," * (SIZE // 3) + b"{}]}", "messages"),
    "many empty parts": (CHAT, _USER + b"[" + b"{}," * (SIZE // 3) + b"{}]}]}", "messages"),
    "many biases": (
        TEXT,
        b'{"prompt": "a", "logit_bias": {'
        + b",".join(b'"%d":1' % number for number in range(SIZE // 11))
        + b"}}",
        "logit_bias",
    ),
    "many stop ids": (
        TEXT,
        b'{"prompt": "a", "stop_token_ids": [' + b"1," * (SIZE // 2) + b"1]}",
        "stop_token_ids",
    ),
}


class Waits:
    """How long others wait: asks for `/live` all the time, in a thread of its own."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=DEADLINE_S)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.longest_s = 0.0
        self.count = 0

    def _run(self) -> None:
        with closing(self._connection) as connection:
            while not self._is_over.is_set():
                before_s = time.perf_counter()
                connection.request("GET", "/live")
                connection.getresponse().read()
                self.longest_s = max(self.longest_s, time.perf_counter() - before_s)
                self.count += 1

    @contextmanager
    def measured(self) -> Iterator[None]:
        self._thread.start()
        try:
            eventually(lambda: self.count > 0, "the first answer")
            yield
        finally:
            self._is_over.set()
            self._thread.join()


def _send(server: ServerProcess, path: str, content: bytes) -> tuple[httpx2.Response, float, float]:
    """The answer, how long it took, and how long somebody else waited at most meanwhile."""
    waits = Waits(server.port)
    with waits.measured():
        before_s = time.perf_counter()
        headers = {"content-type": "application/json"}
        response = server.client.post(path, content=content, headers=headers)
        duration_s = time.perf_counter() - before_s
    return response, duration_s, waits.longest_s


@pytest.mark.parametrize("name", LARGE)
def test_large_bodies_hold_up_nobody(brooklet: ServerProcess, name: str) -> None:
    """The first wrong thing ends the reading; the work is bounded before it is done."""
    path, content, param = LARGE[name]
    durations_s, waits_s = [], []
    for _ in range(NUM_TRIES):
        response, duration_s, wait_s = _send(brooklet, path, content)
        durations_s.append(duration_s)
        waits_s.append(wait_s)
        if duration_s < MAX_REFUSAL_S and wait_s < MAX_WAIT_S:
            break
    error = response.json()["error"]

    assert 400 == response.status_code, error
    assert str(error["param"]).startswith(param), error
    assert min(durations_s) < MAX_REFUSAL_S
    assert min(waits_s) < MAX_WAIT_S


def test_many_unknown_fields_are_tolerated(brooklet: ServerProcess) -> None:
    """A body full of names that nobody knows is odd, not wrong, and holds up nobody either."""
    fields = b",".join(b'"f%d":1' % number for number in range(SIZE // 12))
    content = b"{" + fields + b', "prompt": "a", "max_tokens": 1}'
    tries = [_send(brooklet, TEXT, content) for _ in range(NUM_TRIES)]

    assert {200} == {response.status_code for response, _, _ in tries}
    assert min(wait_s for _, _, wait_s in tries) < MAX_WAIT_S
