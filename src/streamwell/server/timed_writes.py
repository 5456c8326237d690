"""Connections whose client reads no more: what waits to be sent to them has a time limit."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import sys
import termios
from contextlib import suppress
from typing import Any

#: What the kernel may hold of a connection: hundreds of tokens. Linux takes twice as much.
_SEND_BUFFER_BYTES = 128 << 10


class TimedWrites(asyncio.Protocol):
    """Cuts a connection that takes nothing of what waits for it for so long; to be mixed in.

    A client that reads, however slowly, is left alone. To the application a cut is like any
    other disconnect.
    """

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop

    def __init__(self, *args: Any, send_timeout_s: float, **options: Any) -> None:  # noqa: ANN401 - passed on as they come
        super().__init__(*args, **options)
        self._send_timeout_s = send_timeout_s
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # left alone, the kernel would take megabytes for a client that reads nothing, and no write
        # would ever wait
        with suppress(OSError):
            connection: socket.socket = transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        super().connection_made(transport)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.watch_writes()

    def resume_writing(self) -> None:
        self._stop_watching()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def watch_writes(self) -> None:
        """To be called when no more will be written for a while: look after what is left."""
        if self._timer is None and self.transport.get_write_buffer_size():
            num_left = self._num_left()
            self._timer = self.loop.call_later(self._send_timeout_s, self._check_writes, num_left)

    def _check_writes(self, num_left: int) -> None:
        self._timer = None
        if self._num_left() == num_left:
            self.transport.abort()
        else:
            self.watch_writes()

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _num_left(self) -> int:
        """Bytes that wait here, and those in the kernel that the client has not taken."""
        # The kernel asks for more only when much of its buffer is free: by what waits here alone,
        # a slow reader of a large buffer would look like one that does not read.
        in_kernel = bytes(4)
        with suppress(OSError, ValueError):  # not every system tells, nor a closed connection
            descriptor = self.transport.get_extra_info("socket").fileno()
            in_kernel = fcntl.ioctl(descriptor, termios.TIOCOUTQ, in_kernel)
        return self.transport.get_write_buffer_size() + int.from_bytes(in_kernel, sys.byteorder)
