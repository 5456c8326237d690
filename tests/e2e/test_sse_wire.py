"""The bytes of a stream: headers, frame ids, order, and how streams end."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from harness import DEADLINE_S, HOST, ServerProcess, StartServer, frames_of

pytestmark = pytest.mark.slow

CHAT = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 12, "seed": 1}
TEXT = {"prompt": "Once upon a time", "max_tokens": 12, "seed": 1}
ROUTES = [
    ("/v1/chat/completions", CHAT, "chatcmpl-"),
    ("/chat/completions", CHAT, "chatcmpl-"),
    ("/v1/completions", TEXT, "cmpl-"),
    ("/completions", TEXT, "cmpl-"),
]


@pytest.mark.parametrize(("path", "body", "prefix"), ROUTES, ids=[path for path, *_ in ROUTES])
def test_every_frame_has_its_run_and_a_dense_seq(
    scripted: ServerProcess, path: str, body: dict[str, Any], prefix: str
) -> None:
    """With and without `/v1`, each frame is `id: <run>:<seq>` and its data, seq without gaps."""
    with scripted.stream(body | {"stream_options": {"include_usage": True}}, path) as stream:
        frames = list(stream)
    run_ids, seqs = zip(*(str(frame.id).rsplit(":", 1) for frame in frames), strict=True)

    assert {frames[0].json["id"]} == set(run_ids)
    assert run_ids[0].startswith(prefix)
    # usage and [DONE] are both the run's last event, and the first of them only a part of it
    end = len(frames) - 2
    assert [*map(str, range(end)), f"{end}.0", f"{end}"] == list(seqs)
    assert "[DONE]" == frames[-1].data


def test_headers_of_a_stream(scripted: ServerProcess) -> None:
    """The headers tell every proxy not to buffer, cache or change the stream."""
    with scripted.client.stream("POST", "/v1/completions", json=TEXT | {"stream": True}) as answer:
        headers = answer.headers
        answer.read()

    assert "text/event-stream; charset=utf-8" == headers["content-type"]
    assert "no-cache" == headers["cache-control"]
    assert "no" == headers["x-accel-buffering"]
    assert headers["x-request-id"].startswith("req_")
    assert "content-encoding" not in headers
    assert "server" not in headers


@pytest.mark.parametrize("stream", [True, False])
def test_a_harmless_request_id_comes_back(scripted: ServerProcess, stream: bool) -> None:
    """The caller's `x-request-id` is echoed; one with unsafe characters is replaced."""
    body = TEXT | {"stream": stream}
    good = scripted.post("/v1/completions", body, headers={"x-request-id": "my-id:1"})
    bad = scripted.post("/v1/completions", body, headers={"x-request-id": 'a"b<c>'})

    assert "my-id:1" == good.headers["x-request-id"]
    assert bad.headers["x-request-id"].startswith("req_")


def test_a_stream_speaks_before_its_first_token(start_server: StartServer) -> None:
    """The role chunk is sent at once, and comments follow for as long as no token comes."""
    flags = ("--scripted-step-s", "3600", "--sse-ping-s", "0.05")
    server = start_server("--engine", "scripted", *flags)
    server.wait_until_ready()
    path = "/v1/chat/completions"
    with server.client.stream("POST", path, json=CHAT | {"stream": True}) as answer:
        lines = answer.iter_lines()
        first = next(frames_of(lines))
        comments = [next(lines) for _ in range(3)]

    assert "assistant" == first.json["choices"][0]["delta"]["role"]
    assert [": ping"] * 3 == comments


def _raw_chunks(server: ServerProcess, path: str, body: dict[str, Any]) -> list[bytes]:
    """The HTTP chunks of a streamed answer, as the server cut them."""
    payload = json.dumps(body | {"stream": True}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(payload)}\r\n"
    head += "Content-Type: application/json\r\nConnection: close\r\n\r\n"
    with socket.create_connection((HOST, server.port), timeout=DEADLINE_S) as connection:
        connection.sendall(head.encode() + payload)
        with connection.makefile("rb") as answer:
            assert b"HTTP/1.1 200 OK\r\n" == answer.readline()
            while answer.readline() != b"\r\n":
                pass
            chunks = []
            while size := int(answer.readline(), 16):
                chunks.append(answer.read(size))
                assert b"\r\n" == answer.readline()
            assert b"\r\n" == answer.readline()
            assert b"" == answer.read()
    return chunks


def test_every_chunk_holds_whole_frames(scripted: ServerProcess) -> None:
    """A frame is never cut in two writes, and the chunked body ends properly."""
    chunks = _raw_chunks(scripted, "/v1/chat/completions", CHAT)

    assert len(chunks) > 1
    for chunk in chunks:
        assert chunk.endswith(b"\n\n")
        assert list(frames_of(iter(chunk.decode().split("\n")[:-1])))


def test_every_choice_finishes_once(scripted: ServerProcess) -> None:
    """Of two prompts with two choices each, all four indices get exactly one reason."""
    body = {"prompt": ["a", "b"], "n": 2, "max_tokens": 4}
    with scripted.stream(body) as stream:
        frames = list(stream)

    indices = [f.json["choices"][0]["index"] for f in frames if f.finish_reason]
    assert [0, 1, 2, 3] == sorted(indices)
