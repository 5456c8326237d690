"""Runs the application under uvicorn, and drains it when it is asked to stop.

The first signal closes admission and lets live runs end, up to the drain time; new requests get
503 meanwhile. A second signal lets them go on another time: readers are told so, and the process
ends. A third one waits for nothing.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from functools import partial
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamwell.server.frames import MAX_MESSAGE_BYTES, PING_S, WebSocketProtocol, quieten
from streamwell.server.timed_requests import REQUEST_TIMEOUT_S, TimedRequests
from streamwell.server.timed_writes import TimedWrites

Drain = Callable[[float], Awaitable[None]]

#: After the drain, last events are still to be written to sockets; less after a second signal.
_CLOSE_TIMEOUT_S, _HURRIED_CLOSE_TIMEOUT_S = 5, 1
#: Seconds that a connection may be idle between two requests. Clients and proxies close theirs
#: within a minute; one that is closed here while a request is on its way fails that.
_KEEP_ALIVE_S = 75
#: Request line and headers together.
MAX_HEADER_BYTES = 16 * 1024
_URL = re.compile(rb"https?://(?P<host>[^/?]*)(?P<path>.*)", re.IGNORECASE)


class _Connection(h11.Connection):
    """h11, but the chunks of a body are framed at once: there is nothing about them to check.

    What is sent is the same. h11 takes ten times as long for it, and that for every token. And a
    request may name its target as it would to a proxy: servers have to take it (RFC 9112, 3.2.2).
    """

    _is_chunked = False

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request) and (url := _URL.fullmatch(event.target)):
            others = [(name, value) for name, value in event.headers if name != b"host"]
            return h11.Request(
                method=event.method,
                target=url["path"] if url["path"].startswith(b"/") else b"/" + url["path"],
                headers=[(b"host", url["host"]), *others],
                http_version=event.http_version,
            )
        return event

    def send(self, event: h11.Event) -> bytes | None:  # type: ignore[override] # h11 has overloads
        if self._is_chunked and isinstance(event, h11.Data) and event.data:
            return b"%x\r\n%b\r\n" % (len(event.data), event.data)
        sent = super().send(event)
        if isinstance(event, h11.Response):
            self._is_chunked = b"\r\nTransfer-Encoding: chunked\r\n" in (sent or b"")
        elif isinstance(event, h11.EndOfMessage):
            self._is_chunked = False
        return sent


class _Protocol(TimedWrites, TimedRequests, H11Protocol):
    """uvicorn's protocol on our connection."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - passed on as they come
        super().__init__(*args, **options)
        self.conn = _Connection(h11.SERVER, MAX_HEADER_BYTES)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.watch_writes()


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
            _Protocol, send_timeout_s=send_timeout_s, request_timeout_s=request_timeout_s
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
