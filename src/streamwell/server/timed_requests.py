"""Connections whose client does not get to the end of a request: it has a time limit."""

from __future__ import annotations

import asyncio
from typing import Any

import h11

#: Seconds from a connection, or from a later request's first byte, to the last byte of a request.
REQUEST_TIMEOUT_S = 60.0


class TimedRequests(asyncio.Protocol):
    """Cuts a connection on which no whole request comes in time; to be mixed into uvicorn's.

    Who sends nothing, or a byte now and then, would hold it for ever, and what it sent of a body.
    """

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    conn: h11.Connection

    def __init__(self, *args: Any, request_timeout_s: float, **options: Any) -> None:  # noqa: ANN401 - passed on as they come
        super().__init__(*args, **options)
        self._request_timeout_s = request_timeout_s
        self._request_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.watch_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.watch_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_request_timer()
        super().connection_lost(exc)

    def watch_request(self) -> None:
        """The time is that of a whole request; between two, uvicorn's own for idle ones runs."""
        is_web_socket = self.transport.get_protocol() is not self  # it has another one since
        if is_web_socket or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_request_timer()
        elif self._request_timer is None:
            self._request_timer = self.loop.call_later(
                self._request_timeout_s, self.transport.abort
            )

    def _stop_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None
