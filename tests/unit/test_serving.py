"""The bytes of HTTP that we frame ourselves are those that h11 would send; how a server ends."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import pytest

from streamwell.server.serving import _Connection, make_server

CHUNKED: list[tuple[bytes, bytes]] = []
SIZED = [(b"content-length", b"10")]


def answers(
    connection: h11.Connection, request: bytes, headers: list[tuple[bytes, bytes]]
) -> bytes:
    """Everything that is sent in answer to two equal requests on one connection."""
    sent = b""
    for _ in range(2):
        connection.receive_data(request)
        while not isinstance(connection.next_event(), h11.EndOfMessage):
            pass
        events = [
            h11.Response(status_code=200, headers=headers),
            *(h11.Data(data=data) for data in (b"0123", b"", b"456789")),
            h11.EndOfMessage(),
        ]
        sent += b"".join(connection.send(event) or b"" for event in events)
        if connection.our_state is not h11.DONE:
            return sent
        connection.start_next_cycle()
    return sent


@pytest.mark.parametrize("headers", [CHUNKED, SIZED], ids=["chunked", "sized"])
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_bodies_are_framed_as_h11_does(version: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Chunks where h11 sends chunks, and nothing around the data where it does not."""
    request = b"GET / HTTP/%b\r\nhost: test\r\n\r\n" % version
    expected = answers(h11.Connection(h11.SERVER), request, headers)
    assert expected == answers(_Connection(h11.SERVER), request, headers)


def test_an_answer_to_head_has_no_body() -> None:
    """Its headers say chunked, and yet no chunk may follow."""
    request = b"HEAD / HTTP/1.1\r\nhost: test\r\n\r\n"
    ours, theirs = _Connection(h11.SERVER), h11.Connection(h11.SERVER)
    for connection in (ours, theirs):
        connection.receive_data(request)
        connection.next_event()
        connection.next_event()
        connection.send(h11.Response(status_code=200, headers=[]))
    empty = h11.Data(data=b"")  # all that uvicorn gives h11 then
    assert theirs.send(empty) == ours.send(empty)
    assert theirs.send(h11.EndOfMessage()) == ours.send(h11.EndOfMessage())


def test_a_server_without_a_model_ends_after_its_readers_were_told() -> None:
    """It waits for no run, but runs that it has taken over are let go of in order."""
    drains_s: list[float] = []

    async def drain(seconds: float) -> None:
        assert not server.should_exit
        drains_s.append(seconds)
        drained.set()

    async def app(*_args: Any) -> None: ...  # noqa: ANN401 - ASGI's

    async def test() -> None:
        server.exit_now()
        await drained.wait()
        await asyncio.sleep(0)

    drained = asyncio.Event()
    server = make_server(app, drain=drain, drain_s=60, send_timeout_s=60)
    asyncio.run(test())

    assert drains_s == [0.0]
    assert server.should_exit
