"""A network between browser and server that can be cut."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from harness import HOST

_RECEIVE_BYTES = 65536
#: Close without waiting, so that the other side sees a reset.
_AT_ONCE = struct.pack("ii", 1, 0)


class CuttingProxy:
    """Passes bytes on; answers to requests for one path are cut after so many bytes."""

    def __init__(
        self, listener: socket.socket, to_port: int, path: str, cuts: Sequence[int]
    ) -> None:
        """`cuts` are the lengths of the first answers; those after them are whole."""
        self.port = listener.getsockname()[1]
        self.num_cut = 0
        self.cuts = list(cuts)
        self.request_line = f"GET {path}".encode()
        self._listener = listener
        self._to_port = to_port

    def accept(self) -> None:
        """Serve connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):  # the server may be down
            server = socket.create_connection((HOST, self._to_port))
            _Connection(self, client, server).serve()
        _close(client)


class _Connection:
    """Two sockets, and two threads that pass on what comes from each."""

    def __init__(self, proxy: CuttingProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        #: What is left of an answer that will be cut.
        self._left: int | None = None

    def serve(self) -> None:
        sending = threading.Thread(target=self._pass_requests, daemon=True)
        sending.start()
        self._pass_answers()
        _close(self._client)
        _close(self._server)
        sending.join()

    def _pass_requests(self) -> None:
        """A browser uses a connection for more than one, one after the other."""
        with suppress(OSError):
            while data := self._client.recv(_RECEIVE_BYTES):
                if data.startswith(self._proxy.request_line) and self._proxy.cuts:
                    self._left = self._proxy.cuts.pop(0)
                self._server.sendall(data)
        _close(self._server)

    def _pass_answers(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(_RECEIVE_BYTES):
                left = self._left  # once: the next request may set it meanwhile
                self._client.sendall(data[:left])
                if left is not None:
                    self._left = left - len(data)
                    if self._left <= 0:
                        self._proxy.num_cut += 1
                        return


def _close(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
    connection.close()


@contextmanager
def cutting_proxy(to_port: int, path: str, cuts: Sequence[int]) -> Iterator[CuttingProxy]:
    """A proxy on a port of its own."""
    with socket.create_server((HOST, 0)) as listener:
        proxy = CuttingProxy(listener, to_port, path, cuts)
        accepting = threading.Thread(target=proxy.accept)
        accepting.start()
        yield proxy
        listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        accepting.join()
