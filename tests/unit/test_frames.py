"""WebSockets of clients that stall: nothing of them stays."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
import uvloop
from websockets.asyncio.client import connect
from websockets.client import ClientProtocol
from websockets.uri import parse_uri

from streamwell.server.frames import MAX_WAITING_MESSAGES, WebSocketProtocol

pytestmark = pytest.mark.timeout(60)

DEADLINE_S = 30
CHUNK = "x" * 65536


class Application:
    """Accepts, then sends without an end."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def __call__(self, _scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        try:
            await receive()
            await send({"type": "websocket.accept"})
            while True:
                await send({"type": "websocket.send", "text": CHUNK})
        finally:
            self.ended.set()


def _handshake() -> bytes:
    client = ClientProtocol(parse_uri("ws://here/"))
    client.send_request(client.connect())
    return b"".join(client.data_to_send())


async def _turn() -> None:
    await asyncio.sleep(0)


@asynccontextmanager
async def _served(
    app: Any,  # noqa: ANN401 - ASGI
    protocol: type[WebSocketProtocol] = WebSocketProtocol,
    *,
    pong_s: float = 0.05,
) -> AsyncIterator[tuple[uvicorn.Server, tuple[str, int]]]:
    """The application on a port of its own, by pings that follow each other fast."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        ws=functools.partial(protocol, send_timeout_s=60.0),
        ws_ping_interval=0.05,
        ws_ping_timeout=pong_s,
        lifespan="off",
        log_level="critical",
    )
    server = uvicorn.Server(config)
    server.config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield server, listener.getsockname()
    finally:
        server.force_exit = True
        await server.shutdown(sockets=[listener])


def _stall(loop: asyncio.AbstractEventLoop) -> None:
    async def test() -> None:
        app = Application()
        async with _served(app) as (server, address):
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect(address)
                client.sendall(_handshake())  # the client never reads
                await app.ended.wait()
                while server.server_state.connections:
                    await _turn()

    try:
        loop.run_until_complete(test())
    finally:
        loop.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_client_that_answers_no_ping_is_dropped(new_loop: Any) -> None:  # noqa: ANN401
    """Although much waits to be sent to it: its connection ends, and the application is told."""
    _stall(new_loop())


@pytest.mark.parametrize("num_early", [0, 1, 3, 3 * MAX_WAITING_MESSAGES])
def test_messages_that_come_early_do_not_hide_pongs(num_early: int) -> None:
    """However many wait for the application, a client that answers pings stays connected."""

    class Counting(WebSocketProtocol):
        def send_keepalive_ping(self) -> None:
            super().send_keepalive_ping()
            pings.append(None)
            if len(pings) == 2:  # so an answer came to the first, or was not asked for
                has_pinged.set()

    pings: list[None] = []
    has_pinged = asyncio.Event()

    async def app(_scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        await receive()
        await send({"type": "websocket.accept"})
        await has_pinged.wait()
        for _ in range(num_early + 1):
            await send({"type": "websocket.send", "text": (await receive())["text"]})

    async def test() -> list[str | bytes]:
        sent = [str(number) for number in range(num_early)]
        async with (
            _served(app, Counting, pong_s=2.5) as (_, (host, port)),
            connect(f"ws://{host}:{port}/", ping_interval=None) as client,
        ):
            for text in sent:
                await client.send(text)
            await has_pinged.wait()
            await client.send("late")
            return [await client.recv() for _ in range(num_early + 1)]

    assert [*map(str, range(num_early)), "late"] == asyncio.run(test())
