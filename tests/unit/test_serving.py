"""The bytes of HTTP that we frame ourselves are those that h11 would send; how a server ends."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from unittest.mock import AsyncMock

import h11
import pytest
from websockets.asyncio.client import connect

from streamwell.server.connections import Connection
from streamwell.server.serving import DrainingServer, make_server

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
    assert expected == answers(Connection(h11.SERVER), request, headers)


def test_an_answer_to_head_has_no_body() -> None:
    """Its headers say chunked, and yet no chunk may follow."""
    request = b"HEAD / HTTP/1.1\r\nhost: test\r\n\r\n"
    ours, theirs = Connection(h11.SERVER), h11.Connection(h11.SERVER)
    for connection in (ours, theirs):
        connection.receive_data(request)
        connection.next_event()
        connection.next_event()
        connection.send(h11.Response(status_code=200, headers=[]))
    empty = h11.Data(data=b"")  # all that uvicorn gives h11 then
    assert theirs.send(empty) == ours.send(empty)
    assert theirs.send(h11.EndOfMessage()) == ours.send(h11.EndOfMessage())


@pytest.mark.parametrize(
    ("target", "path", "host"),
    [
        (b"http://localhost:8000/live", b"/live", b"localhost:8000"),
        (b"HTTPS://Name/v1/runs?limit=1", b"/v1/runs?limit=1", b"Name"),
        (b"http://name", b"/", b"name"),
        (b"http://name?a=/b", b"/?a=/b", b"name"),
        (b"http:///live", b"/live", b""),
        (b"/query?url=http://other/", b"/query?url=http://other/", b"test"),
        (b"*", b"*", b"test"),
    ],
)
def test_a_target_may_name_the_server(target: bytes, path: bytes, host: bytes) -> None:
    """As it does to a proxy; what it says of the host counts, and the header's does not."""
    connection = Connection(h11.SERVER)
    connection.receive_data(b"OPTIONS %b HTTP/1.1\r\nhost: test\r\nx-a: b\r\n\r\n" % target)

    request = connection.next_event()

    assert isinstance(request, h11.Request)
    assert (b"OPTIONS", path, b"1.1") == (request.method, request.target, request.http_version)
    assert [(b"host", host), (b"x-a", b"b")] == list(request.headers)


BOTH_LENGTHS = b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "status", "reason"),
    [
        (b"nonsense\r\n\r\n", 400, "illegal request line"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "Missing mandatory Host: header"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nx y: 1\r\n\r\n", 400, "illegal header line"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 20_000, 431, "buffer too long"),
        (b"POST / HTTP/1.1\r\nhost: a\r\n" + BOTH_LENGTHS, 400, "contradict each other"),
        (b"HEAD / HTTP/1.1\r\nhost: a\r\n" + BOTH_LENGTHS, 400, ""),
        (b"HEAD / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nx\r\n", 400, ""),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nx\r\n", 400, "chunk"),
    ],
)
def test_what_is_no_request_is_refused_as_everything_else_is(
    sent: bytes, status: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An error body with the reason, before any application; and the connection ends.

    A request of two lengths might be two for a proxy before us.
    """

    async def app(_scope: Any, receive: Any, _send: Any) -> None:  # noqa: ANN401 - ASGI's
        assert "http.disconnect" == (await receive())["type"]

    async def test() -> bytes:
        async with _served(app) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(sent)
            answer = await reader.read()
            writer.close()
        return answer

    head, _, body = asyncio.run(test()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in head.lower()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    if not sent.startswith(b"HEAD"):
        error = json.loads(body)["error"]
        assert "invalid_request_error" == error["type"]
        assert reason in error["message"]


HEAD = b"POST / HTTP/1.1\r\nhost: test\r\n"


def test_a_body_that_turns_to_nonsense_cuts_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    """There is no place for an error in an answer that has begun, and none in the log."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
        await receive()
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"yes", "more_body": True})
        assert "http.disconnect" == (await receive())["type"]

    async def test() -> None:
        async with _served(app) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n")
            await reader.readuntil(b"yes\r\n")
            writer.write(b"nonsense\r\n")
            assert b"" == await reader.read()
            writer.close()

    asyncio.run(test())
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


UNFINISHED = [b"", HEAD, HEAD + b"content-length: 10\r\n\r\n123456789"]


@asynccontextmanager
async def _served(
    app: Any,  # noqa: ANN401 - ASGI's
) -> AsyncIterator[tuple[DrainingServer, tuple[str, int]]]:
    """The application on a port of its own, where a request has half a second."""
    server = make_server(
        app, drain=AsyncMock(), drain_s=0, send_timeout_s=60, request_timeout_s=0.5
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(server.serve([listening]))
        yield server, listening.getsockname()
        server.should_exit = True
        await serving


@pytest.mark.parametrize("sent", UNFINISHED, ids=["nothing", "half a head", "half a body"])
def test_a_request_that_does_not_end_is_cut(sent: bytes) -> None:
    """Whoever connects and does not go on holds nothing; a whole request has all the time."""
    is_cut = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
        while (message := await receive())["type"] == "http.request":
            if not message["more_body"]:
                await is_cut.wait()
                await send({"type": "http.response.start", "status": 200})
                await send({"type": "http.response.body", "body": b"yes"})
                return

    async def test() -> None:
        async with _served(app) as (_, address):
            whole = await asyncio.open_connection(*address)
            whole[1].write(HEAD + b"content-length: 2\r\n\r\n12")
            half = await asyncio.open_connection(*address)
            half[1].write(sent)
            with suppress(ConnectionError):
                assert b"" == await half[0].read()
            is_cut.set()
            assert b"200 OK" in await whole[0].readuntil(b"yes")
            for _, writer in (whole, half):
                writer.close()

    asyncio.run(test())


def test_an_idle_connection_is_no_request_that_does_not_end() -> None:
    """Between two requests it stays open for longer than one may take, and than clients wait."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
        await receive()
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"yes"})

    async def test() -> None:
        async with _served(app) as (server, address):
            reader, writer = await asyncio.open_connection(*address)
            for _ in range(2):
                writer.write(HEAD + b"content-length: 2\r\n\r\n12")
                assert b"200 OK" in await reader.readuntil(b"0\r\n\r\n")
                silent = await asyncio.open_connection(*address)
                with suppress(ConnectionError):
                    assert b"" == await silent[0].read()  # the time of a request is over
                silent[1].close()
            # what trickles in then has no more time than the first request
            writer.write(HEAD)
            with suppress(ConnectionError):
                assert b"" == await reader.read()
            writer.close()
        assert server.config.timeout_keep_alive > 60

    asyncio.run(test())


def test_a_web_socket_is_no_request_that_does_not_end() -> None:
    """Once it is open it may stay so; here for longer than a request might take."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": (await receive())["text"]})

    async def test() -> None:
        async with (
            _served(app) as (_, (host, port)),
            connect(f"ws://{host}:{port}/") as web_socket,
        ):
            silent, writer = await asyncio.open_connection(host, port)
            with suppress(ConnectionError):
                assert b"" == await silent.read()  # the time of a request is over
            writer.close()
            await web_socket.send("still here")
            assert "still here" == await web_socket.recv()

    asyncio.run(test())


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
