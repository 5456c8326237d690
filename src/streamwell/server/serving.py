"""Runs the application under uvicorn, and drains it when it is asked to stop.

The first signal closes admission and lets live runs end, up to the drain time; new requests get
503 meanwhile. A second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import h11
import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamwell.server.frames import MAX_MESSAGE_BYTES, PING_S, WebSocketProtocol, quieten

log = structlog.get_logger()

#: What is left to do after the drain is to write last events to sockets.
_CLOSE_TIMEOUT_S = 5
#: Request line and headers together.
MAX_HEADER_BYTES = 16 * 1024


class _Connection(h11.Connection):
    """h11, but the chunks of a body are framed at once: there is nothing about them to check.

    What is sent is the same. h11 takes ten times as long for it, and that for every token.
    """

    _is_chunked = False

    def send(self, event: h11.Event) -> bytes | None:  # type: ignore[override] # h11 has overloads
        if self._is_chunked and isinstance(event, h11.Data) and event.data:
            return b"%x\r\n%b\r\n" % (len(event.data), event.data)
        sent = super().send(event)
        if isinstance(event, h11.Response):
            self._is_chunked = b"\r\nTransfer-Encoding: chunked\r\n" in (sent or b"")
        elif isinstance(event, h11.EndOfMessage):
            self._is_chunked = False
        return sent


class _Protocol(H11Protocol):
    """uvicorn's protocol on our connection."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - passed on as they come
        super().__init__(*args, **options)
        self.conn = _Connection(h11.SERVER, MAX_HEADER_BYTES)


class DrainingServer(uvicorn.Server):
    """A uvicorn server whose first signal drains."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._drain = drain
        self._draining: asyncio.Task[None] | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        self._event_loop = asyncio.get_running_loop()
        await super().startup(sockets)  # type: ignore[arg-type]  # passed on as it came

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._draining is None and self._event_loop is not None:
            self._event_loop.call_soon_threadsafe(self._begin_drain)
        else:
            # uvicorn would print a traceback for every request that this cuts
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
            self.force_exit = self.should_exit = True

    def exit_now(self) -> None:
        """Stop without draining."""
        self.should_exit = True

    def _begin_drain(self) -> None:
        if self._draining is None:
            log.info("draining; a second signal stops at once")
            self._draining = asyncio.create_task(self._drain_then_exit())

    async def _drain_then_exit(self) -> None:
        try:
            await self._drain()
        finally:
            self.should_exit = True


def make_server(
    app: ASGIApp,
    *,
    drain: Callable[[], Awaitable[None]],
) -> DrainingServer:
    """A server ready to `serve()` on a listening socket, before any model is loaded."""
    quieten()
    config = uvicorn.Config(
        app,
        # h11 bounds the size of headers, httptools does not (docs/decisions/0006)
        http=_Protocol,
        ws=WebSocketProtocol,
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        ws_per_message_deflate=False,  # frames of a token do not get smaller
        loop="auto",
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=_CLOSE_TIMEOUT_S,
    )
    return DrainingServer(config, drain)
