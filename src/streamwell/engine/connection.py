"""The engine process's end of the socket to its server.

Threads: a reader takes what comes from the server and ends the process at once when the server is
gone; another one tells every second that the process is not frozen. Standard input and output are
not used.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import time
from collections.abc import Callable

from streamwell.engine.messages import (
    HEADER_BYTES,
    Alive,
    ToEngine,
    ToServer,
    body_length,
    decode_to_engine,
    encode_frame,
)

#: An engine shows this often that it is not frozen, and an idle one that it turns.
HEARTBEAT_S = 1.0


def _end() -> None:
    os._exit(0)  # a step in progress helps nobody


class Connection:
    """The child's end of the socket."""

    def __init__(self, fd: int, end: Callable[[], None] = _end) -> None:
        """`end` is called when the server is gone, in a thread, and ends the process."""
        self._socket = socket.socket(fileno=fd)
        self._sending = threading.Lock()
        self._end = end
        self.inbox: queue.SimpleQueue[ToEngine] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="reader", daemon=True).start()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def send(self, message: ToServer) -> None:
        frame = encode_frame(message)
        with self._sending:
            self._socket.sendall(frame)

    def _beat(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                time.sleep(HEARTBEAT_S)
                self.send(Alive())

    def _read(self) -> None:
        with contextlib.suppress(ConnectionError), self._socket.makefile("rb") as stream:
            while len(header := stream.read(HEADER_BYTES)) == HEADER_BYTES:
                self.inbox.put(decode_to_engine(stream.read(body_length(header))))
        self._end()
