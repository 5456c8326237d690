"""WebSockets of clients that stall: nothing of them stays."""

from __future__ import annotations

import asyncio
import functools
import socket
from typing import Any

import pytest
import uvicorn
import uvloop
from websockets.client import ClientProtocol
from websockets.uri import parse_uri

from streamwell.server.frames import WebSocketProtocol

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


def _stall(loop: asyncio.AbstractEventLoop) -> None:
    async def test() -> None:
        app = Application()
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            app,
            ws=functools.partial(WebSocketProtocol, send_timeout_s=60.0),
            ws_ping_interval=0.05,
            ws_ping_timeout=0.05,
            lifespan="off",
            log_level="critical",
        )
        server = uvicorn.Server(config)
        server.config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listener])
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(listener.getsockname())
            client.sendall(_handshake())
            async with asyncio.timeout(DEADLINE_S):  # the client never reads
                await app.ended.wait()
                while server.server_state.connections:
                    await _turn()
        server.force_exit = True
        await server.shutdown(sockets=[listener])

    try:
        loop.run_until_complete(test())
    finally:
        loop.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_client_that_answers_no_ping_is_dropped(new_loop: Any) -> None:  # noqa: ANN401
    """Although much waits to be sent to it: its connection ends, and the application is told."""
    _stall(new_loop())
