"""A client that does not read holds up nobody: neither the engine nor its neighbours."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from harness import DEADLINE_S, HOST, Frame, ServerProcess, StartServer, eventually, frames_of

pytestmark = pytest.mark.slow

#: About 3 MiB of frames, far more than the buffers of a connection that is not read.
LARGE = {"prompt": ["Hello"] * 32, "max_tokens": 400, "seed": 1, "stream": True}
SMALL = {"prompt": "Once upon a time", "max_tokens": 50, "seed": 1}


@contextmanager
def _unread(server: ServerProcess, body: dict[str, object]) -> Iterator[socket.socket]:
    """A connection with a request in it and little room for the answer."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(DEADLINE_S)
        connection.connect((HOST, server.port))
        payload = json.dumps(body).encode()
        head = "POST /v1/completions HTTP/1.0\r\nHost: localhost\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
        connection.sendall(head.encode() + payload)
        yield connection


def _received(connection: socket.socket, max_bytes: int = -1) -> list[Frame]:
    """All whole frames, of so many bytes or up to the end of the connection."""
    with connection.makefile("rb") as answer:
        _, _, content = answer.read(max_bytes).partition(b"\r\n\r\n")
    whole, _, _ = content.decode(errors="replace").rpartition("\n\n")
    return list(frames_of(iter(f"{whole}\n".split("\n"))))


def _texts(frames: list[Frame]) -> list[str]:
    """The text of every choice, from the frames of a stream that has ended well."""
    *frames, last = frames
    assert "[DONE]" == last.data
    texts = [""] * 32
    for frame in frames:
        texts[frame.json["choices"][0]["index"]] += frame.text
    return texts


def test_a_client_that_does_not_read_slows_nobody(scripted: ServerProcess) -> None:
    """Its run goes on to the end, a neighbour streams as if alone, and late it gets all of it."""
    alone = scripted.stream_text(SMALL)
    with _unread(scripted, LARGE) as connection:
        eventually(lambda: scripted.metrics()["requests_running"] == 32, "its run goes on")
        assert alone == scripted.stream_text(SMALL)
        eventually(scripted.is_idle, "its run ends, though nobody has read anything")
        texts = _texts(_received(connection))

    whole = scripted.post("/v1/completions", LARGE | {"stream": False, "seed": 1}).json()
    assert [choice["text"] for choice in whole["choices"]] == texts


def test_one_that_never_reads_may_leave(scripted: ServerProcess) -> None:
    """A run whose reader is stuck ends like any other when the connection is closed."""
    before = scripted.metrics()["generation_tokens_total"]
    with _unread(scripted, LARGE | {"max_tokens": 3000}):
        eventually(lambda: scripted.metrics()["requests_running"] == 32, "its run goes on")
    eventually(scripted.is_idle, "its run has been cancelled")

    assert scripted.metrics()["generation_tokens_total"] - before < 32 * 3000


def test_one_that_stops_reading_is_cut_and_may_come_back(start_server: StartServer) -> None:
    """After the time limit its run is paused; it goes on after the last frame that it has."""
    server = start_server(
        "--engine", "scripted", "--scripted-step-s", "0.01", "--send-timeout-s", "0.5"
    )
    server.wait_until_ready()
    with _unread(server, LARGE | {"max_tokens": 600}) as connection:
        eventually(lambda: server.metrics()["client_disconnects_total"] == 1, "it is cut")
        frames = _received(connection, max_bytes=10_000)
    run_id = frames[0].json["id"]
    assert "paused" == server.client.get(f"/v1/runs/{run_id}").json()["status"]
    headers = {"Last-Event-ID": str(frames[-1].id)}
    with server.client.stream("GET", f"/v1/completions/{run_id}", headers=headers) as response:
        frames += frames_of(response.iter_lines())

    whole = server.client.get(f"/v1/completions/{run_id}").json()
    assert [choice["text"] for choice in whole["choices"]] == _texts(frames)
    assert len({frame.id for frame in frames}) == len(frames)
