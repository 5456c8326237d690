"""Runs the application under uvicorn, and drains it when it is asked to stop.

The first signal closes admission and lets live runs end, up to the drain time; new requests get
503 meanwhile. A second signal lets them go on another time: readers are told so, and the process
ends. A third one waits for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from streamwell.server.connections import Protocol
from streamwell.server.frames import MAX_MESSAGE_BYTES, PING_S, WebSocketProtocol, quieten
from streamwell.server.timed_requests import REQUEST_TIMEOUT_S

Drain = Callable[[float], Awaitable[None]]

#: After the drain, last events are still to be written to sockets; less after a second signal.
_CLOSE_TIMEOUT_S, _HURRIED_CLOSE_TIMEOUT_S = 5, 1
#: Seconds that a connection may be idle between two requests. Clients and proxies close theirs
#: within a minute; one that is closed here while a request is on its way fails that.
_KEEP_ALIVE_S = 75


class DrainingServer(uvicorn.Server):
    """A uvicorn server that drains before it ends."""

    def __init__(self, config: uvicorn.Config, drain: Drain, drain_s: float) -> None:
        super().__init__(config)
        self._drain = drain
        self._drain_s = drain_s
        self._drains: list[asyncio.Task[None]] = []
        self._event_loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        self._event_loop = asyncio.get_running_loop()
        await super().startup(sockets)  # type: ignore[arg-type]  # passed on as it came

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._event_loop is None:
            self._exit_at_once()
        else:
            self._event_loop.call_soon_threadsafe(self._take_signal)

    def exit_now(self) -> None:
        """Stop as after a second signal: nothing is waited for, but readers are told."""
        if not self.should_exit:
            self.config.timeout_graceful_shutdown = _HURRIED_CLOSE_TIMEOUT_S
            self._begin_drain(0.0)

    def _take_signal(self) -> None:
        if not self._drains:
            import structlog  # a tenth of a second that the page need not wait for

            structlog.get_logger().info("draining; a second signal stops at once")
            self._begin_drain(self._drain_s)
        elif len(self._drains) == 1 and not self.should_exit:
            self.exit_now()
        else:
            self._exit_at_once()

    def _begin_drain(self, drain_s: float) -> None:
        self._drains.append(asyncio.create_task(self._drain_then_exit(drain_s)))

    async def _drain_then_exit(self, drain_s: float) -> None:
        try:
            await self._drain(drain_s)
        finally:
            self.should_exit = True

    def _exit_at_once(self) -> None:
        # uvicorn would print a traceback for every request that this cuts
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self.force_exit = self.should_exit = True


def make_server(
    app: ASGIApp,
    *,
    drain: Drain,
    drain_s: float,
    send_timeout_s: float,
    request_timeout_s: float = REQUEST_TIMEOUT_S,
) -> DrainingServer:
    """A server ready to `serve()` on a listening socket, before any model is loaded.

    Args:
        app: the application.
        drain: lets live runs end for so many seconds: `drain_s` or, in a hurry, 0.
        drain_s: how long that is.
        send_timeout_s: how long a client may take nothing of what waits for it.
        request_timeout_s: how long it may take to send a whole request, from its first byte or,
            the first of a connection, from the beginning of that.
    """
    quieten()
    config = uvicorn.Config(
        app,
        # h11 bounds the size of headers, httptools does not (docs/decisions/0006)
        http=partial(  # type: ignore[arg-type] # only called
            Protocol, send_timeout_s=send_timeout_s, request_timeout_s=request_timeout_s
        ),
        ws=partial(WebSocketProtocol, send_timeout_s=send_timeout_s),  # type: ignore[arg-type]
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        ws_per_message_deflate=False,  # frames of a token do not get smaller
        loop="auto",
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_CLOSE_TIMEOUT_S,
    )
    return DrainingServer(config, drain, drain_s)
