"""A client that reads no more loses its connection; one that reads slowly does not."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.utils import ClientDisconnected

from streamwell.server.serving import make_server
from streamwell.server.timed_writes import TimedWrites

#: Only ends a test that would hang.
DEADLINE_S = 30
SEND_TIMEOUT_S = 0.2
CHUNK = b"x" * (1 << 16)
#: More than the buffers of a socket that is not read.
NUM_CHUNKS = 256

HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
WEBSOCKET = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


@contextmanager
def unread(port: int, request: bytes) -> Iterator[None]:
    """A connection that sends a request and reads nothing."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.sendall(request)
        yield


def serve(app: ASGIApp, test: Callable[[int, set[Any]], Awaitable[None]]) -> None:
    """Run a test with the port and the connections of a server."""

    async def drain(drain_s: float) -> None:
        assert drain_s == 0  # the test ends it; nobody sends a signal

    async def main() -> None:
        server = make_server(app, drain=drain, drain_s=0, send_timeout_s=SEND_TIMEOUT_S)
        with closing(socket.create_server(("127.0.0.1", 0))) as listener:
            serving = asyncio.create_task(server.serve([listener]))
            try:
                async with asyncio.timeout(DEADLINE_S):
                    await test(listener.getsockname()[1], server.server_state.connections)
            finally:
                server.exit_now()
                await serving

    asyncio.run(main())


async def turn() -> None:
    """Let the other tasks work."""
    await asyncio.sleep(0)


async def until_none(connections: set[Any]) -> None:
    while connections:
        await turn()


def test_a_stream_that_nobody_reads_is_cut() -> None:
    """The application sees a client that has gone, and can send on without harm."""
    gone = asyncio.Event()

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        assert "http.request" == (await receive())["type"]
        await send({"type": "http.response.start", "status": 200})
        for _ in range(NUM_CHUNKS):
            await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
        assert "http.disconnect" == (await receive())["type"]
        gone.set()

    async def test(port: int, connections: set[Any]) -> None:
        with unread(port, HTTP):
            await gone.wait()
            await until_none(connections)

    serve(app, test)


def test_a_whole_answer_that_nobody_reads_is_cut() -> None:
    """All of it is written, and waits: the connection ends all the same."""
    written = asyncio.Event()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": NUM_CHUNKS * CHUNK})
        written.set()

    async def test(port: int, connections: set[Any]) -> None:
        with unread(port, HTTP):
            await written.wait()
            await until_none(connections)

    serve(app, test)


def test_a_websocket_that_nobody_reads_is_cut() -> None:
    """Long before it has missed a ping."""
    gone = asyncio.Event()

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        try:
            for _ in range(NUM_CHUNKS):
                await send({"type": "websocket.send", "bytes": CHUNK})
        except ClientDisconnected:
            gone.set()

    async def test(port: int, connections: set[Any]) -> None:
        with unread(port, WEBSOCKET):
            await gone.wait()
            await until_none(connections)

    serve(app, test)


class Transport:
    """A transport with so much left to send."""

    def __init__(self, num_left: int) -> None:
        self.num_left = num_left
        self.is_aborted = False

    def get_write_buffer_size(self) -> int:
        return self.num_left

    def get_extra_info(self, _name: str) -> Transport:
        return self

    def fileno(self) -> int:
        return -1  # no kernel has anything of it

    def abort(self) -> None:
        self.is_aborted = True


class Clock:
    """An event loop whose timers go off when they are told to."""

    def __init__(self) -> None:
        self.timers: list[Callable[[], None]] = []

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: object) -> Any:  # noqa: ANN401 - a handle
        assert SEND_TIMEOUT_S == delay_s
        self.timers.append(lambda: callback(*args))
        return self

    def cancel(self) -> None:
        self.timers.clear()


def protocol(num_left: int) -> tuple[TimedWrites, Transport, Clock]:
    timed = TimedWrites(send_timeout_s=SEND_TIMEOUT_S)
    timed.transport, timed.loop = transport, clock = Transport(num_left), Clock()  # type: ignore[assignment]
    return timed, transport, clock


@pytest.mark.parametrize("sizes", [[9], [8, 8], [8, 7, 1, 1]])
def test_what_does_not_get_less_is_cut(sizes: list[int]) -> None:
    """Each time that something moved, the client gets the whole time again."""
    timed, transport, clock = protocol(9)
    timed.pause_writing()
    for size in sizes:
        assert not transport.is_aborted
        transport.num_left = size
        clock.timers.pop()()

    assert transport.is_aborted


@pytest.mark.parametrize("sizes", [[0], [8, 0], [8, 7, 6, 1, 0]])
def test_who_reads_slowly_is_left_alone(sizes: list[int]) -> None:
    """Until nothing waits; then nothing is watched."""
    timed, transport, clock = protocol(9)
    timed.watch_writes()
    for size in sizes:
        transport.num_left = size
        clock.timers.pop()()

    assert not transport.is_aborted
    assert [] == clock.timers


def test_a_pause_that_ends_is_not_watched() -> None:
    """The next one begins anew, though as much may wait as before."""
    timed, transport, clock = protocol(9)
    timed.pause_writing()
    timed.resume_writing()
    assert [] == clock.timers
    timed.pause_writing()
    assert 1 == len(clock.timers)
    assert not transport.is_aborted


def test_a_lost_connection_is_not_watched() -> None:
    """Its timer goes with it; and there is one, however often writing is paused."""
    timed, _transport, clock = protocol(9)
    timed.pause_writing()
    timed.pause_writing()
    assert 1 == len(clock.timers)
    timed.connection_lost(None)
    assert [] == clock.timers


def test_what_nobody_waits_for_is_not_watched() -> None:
    """An answer that is sent needs no timer."""
    timed, _transport, clock = protocol(0)
    timed.watch_writes()
    assert [] == clock.timers


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not tell")
def test_what_a_client_takes_from_the_kernel_counts() -> None:
    """A slow reader of a large buffer moves something, long before the kernel asks for more."""

    async def test() -> None:
        with socket.socket() as client, socket.create_server(("127.0.0.1", 0)) as listener:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(listener.getsockname())
            connection, _ = listener.accept()
            loop = asyncio.get_running_loop()
            transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, connection)
            timed = TimedWrites(send_timeout_s=SEND_TIMEOUT_S)
            timed.transport = transport
            transport.write(NUM_CHUNKS * CHUNK)
            before = timed._num_left()
            assert before > transport.get_write_buffer_size() > 0
            for _ in range(8):
                client.recv(4096)
            while timed._num_left() == before:
                await turn()
            assert timed._num_left() < before
            transport.abort()

    asyncio.run(asyncio.wait_for(test(), DEADLINE_S))
