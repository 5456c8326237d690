"""What the seeds' routes send, taken apart."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any

import requests
from harness import DEADLINE_S, HOST, Frame, ServerProcess, frames_of

#: What the fixture `run_example` gives: the name of a program and its arguments in, its output out.
RunExample = Callable[..., str]


def frames_in(text: str) -> list[Frame]:
    """The frames of a stream that is given whole."""
    return list(frames_of(iter(text.splitlines())))


def frames_with(response: requests.Response) -> list[Frame]:
    """The frames of a stream that is followed to its end."""
    assert 200 == response.status_code, response.text
    return list(frames_of(response.iter_lines(decode_unicode=True)))


def texts_of(frames: list[Frame]) -> list[str]:
    """The texts of frames that end with `[DONE]`."""
    assert "[DONE]" == frames[-1].data, frames
    return [frame.json["text"] for frame in frames[:-1]]


def run_text(server: ServerProcess, run_id: str) -> str:
    """The text of a run as the log has it."""
    text: str = server.client.get(f"/v1/runs/{run_id}").json()["choices"][0]["text"]
    return text


def chunks_of(server: ServerProcess, path: str, body: dict[str, Any]) -> list[bytes]:
    """The chunks of an answer's body, as they are on the wire."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(content)}\r\n\r\n"
    connection = socket.create_connection((HOST, server.port), timeout=DEADLINE_S)
    with closing(connection), connection.makefile("rb") as answer:
        connection.sendall(head.encode() + content)
        while answer.readline() != b"\r\n":
            pass
        chunks = []
        while size := int(answer.readline(), 16):
            chunks.append(answer.read(size))
            assert b"\r\n" == answer.readline()
        return chunks
