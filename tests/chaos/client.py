"""Clients on raw sockets that go on with a run after every cut, as an `EventSource` does.

They see bytes: a cut is at the very byte that a test names, and only complete frames count.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from harness import DEADLINE_S, HOST, eventually
from routes import Ask, Event, Route, num_breaks

#: A frozen engine is noticed after 8 s; the cores may be shared with others.
FOLLOW_TIMEOUT_S = 2 * DEADLINE_S
_RECEIVE_BYTES = 1 << 16

Cut = Literal["fin", "rst"]


class Unexpected(Exception):
    """The server said what it must not say."""


class Dechunker:
    """The payload of a chunked body that comes in any pieces."""

    def __init__(self) -> None:
        self.is_ended = False
        self._raw = b""
        #: What is left of a chunk, with the line end behind it.
        self._left = 0

    def push(self, data: bytes) -> bytes:
        self._raw += data
        payload = b""
        while not self.is_ended:
            payload += self._raw[: max(0, self._left - 2)]
            taken = min(self._left, len(self._raw))
            self._raw, self._left = self._raw[taken:], self._left - taken
            if self._left:
                break
            line, found, rest = self._raw.partition(b"\r\n")
            if not found:
                break
            size = int(line, 16)
            self.is_ended = size == 0
            self._raw, self._left = rest, size + 2
        return payload


class Frames:
    """Complete server-sent events out of a payload that comes in any pieces."""

    def __init__(self) -> None:
        #: What has come of the next one.
        self.rest = b""

    def push(self, payload: bytes) -> list[Event]:
        *frames, self.rest = (self.rest + payload).split(b"\n\n")
        return list(map(Event, frames))


class Connection:
    """One request, and its answer as it comes; closing it is a cut at the byte read last."""

    def __init__(self, port: int, ask: Ask | bytes, *, receive_buffer: int | None = None) -> None:
        self._socket = socket.socket()
        try:
            if receive_buffer is not None:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            self._socket.settimeout(DEADLINE_S)
            self._socket.connect((HOST, port))
            self._socket.sendall(ask if isinstance(ask, bytes) else ask.encode())
        except BaseException:
            self._socket.close()
            raise
        self._head = self._body = b""
        self._chunks = Dechunker()

    def status(self) -> int:
        """Read up to the end of the headers; `ConnectionError` if there is none."""
        while b"\r\n\r\n" not in self._head:
            self._head += self.receive()
        self._head, _, self._body = self._head.partition(b"\r\n\r\n")
        return int(self._head.split(b" ", 2)[1])

    def receive(self, max_bytes: int = _RECEIVE_BYTES) -> bytes:
        """Raw bytes as they come; `ConnectionError` at their end."""
        data, self._body = self._body[:max_bytes], self._body[max_bytes:]
        data = data or self._socket.recv(max_bytes)
        if not data:
            raise ConnectionError("the connection was closed")
        return data

    def payloads(self, max_bytes: int | None = None) -> Iterator[bytes]:
        """The body's payload until its end, or until so many raw bytes of the body were read."""
        left = max_bytes
        while not self._chunks.is_ended and (left is None or left > 0):
            data = self.receive(_RECEIVE_BYTES if left is None else min(left, _RECEIVE_BYTES))
            left = None if left is None else left - len(data)
            yield self._chunks.push(data)

    @property
    def is_ended(self) -> bool:
        return self._chunks.is_ended

    def read_out(self) -> None:
        """Read until the server closes the connection, or resets it."""
        with contextlib.suppress(ConnectionError):
            while True:
                self.receive()

    def half_close(self) -> None:
        """Say that nothing more will be sent, and go on reading."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self, how: Cut = "fin") -> None:
        if how == "rst":
            linger = struct.pack("ii", 1, 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class PlannedCut:
    """Leave after so many raw bytes of a body."""

    after_bytes: int
    how: Cut = "fin"
    #: Go on up to the next byte within a character.
    in_character: bool = False


def is_inside_a_character(tail: bytes) -> bool:
    """Bytes of a character are there, and others are missing."""
    try:
        tail.decode()
    except UnicodeDecodeError as error:
        return error.end == len(tail)
    return False


class Follower:
    """One run, read by a client that comes back until it has seen its end."""

    def __init__(self, port: int, route: Route) -> None:
        self.route = route
        self.events: list[Event] = []
        #: When each event came.
        self.arrivals_s: list[float] = []
        self.num_connections = 0
        #: Times that a connection was cut by the other side.
        self.num_losses = 0
        #: Seconds from each request to go on to the first byte of its answer's body.
        self.first_bytes_s: list[float] = []
        #: The beginnings of events at which it has cut.
        self.cut_tails: list[bytes] = []
        self._port = port
        self._cuts: list[PlannedCut] = []

    @property
    def run_id(self) -> str:
        return self.events[0].run_id

    @property
    def text(self) -> str:
        return "".join(map(self.route.text_of, self.events))

    def text_by_choice(self) -> dict[int, str]:
        """The texts of a completion with several choices."""
        texts: dict[int, str] = {}
        for event in self.events:
            for choice in event.json.get("choices", []):
                texts[choice["index"]] = texts.get(choice["index"], "") + self.route.text_of(event)
        return texts

    @property
    def is_ended(self) -> bool:
        return bool(self.events) and self.route.is_end(self.events[-1])

    @property
    def stall_s(self) -> float:
        """The longest time between two events."""
        pairs = zip(self.arrivals_s, self.arrivals_s[1:], strict=False)
        return max((later - earlier for earlier, later in pairs), default=0.0)

    def plan(self, cuts: list[PlannedCut]) -> None:
        """Cut one connection after the other."""
        self._cuts = cuts

    @property
    def num_breaks(self) -> int:
        """How often an event is not the one that follows the event before it."""
        return num_breaks(self.events)

    def replay(self) -> list[Event]:
        """The whole stream of the ended run, as a new client gets it."""
        frames, events = Frames(), []
        with Connection(self._port, self.route.again(self.run_id)) as connection:
            assert 200 == connection.status()
            for payload in connection.payloads():
                events += frames.push(payload)
        return events

    def follow(self) -> Follower:
        """Read to the end of the run, whatever happens to connections.

        Raises:
            Unexpected: an answer that no restart explains.
        """
        eventually(self._read_on, f"the end of {self.route.name}", FOLLOW_TIMEOUT_S)
        return self

    def _read_on(self) -> bool:
        cut = self._cuts.pop(0) if self._cuts else None
        asked_s, num_events = time.monotonic(), len(self.events)
        try:
            self._read_once(cut, asked_s)
        except (ConnectionError, TimeoutError):
            self.num_losses += 1
            if cut is not None and len(self.events) == num_events:
                self._cuts.insert(0, cut)  # it was not carried out
        return self.is_ended

    def _read_once(self, cut: PlannedCut | None, asked_s: float) -> None:
        """One connection: up to its end, or to the cut."""
        last = self.events[-1] if self.events else None
        for events in self._pieces(last, cut):
            if last is not None and asked_s:
                self.first_bytes_s.append(time.monotonic() - asked_s)
                asked_s = 0.0
            for event in events:
                self.take(event)

    def _pieces(self, last: Event | None, cut: PlannedCut | None) -> Iterator[list[Event]]:
        """The events of each piece of an answer's body that comes."""
        with Connection(self._port, self.route.ask(last)) as connection:
            self.num_connections += 1
            status = connection.status()
            if status == 503:
                return  # loading, restarting: it is asked again
            if status != 200:
                raise Unexpected(f"{self.route.name}: {status} {connection.receive()!r}")
            frames = Frames()
            for payload in connection.payloads(cut.after_bytes if cut else None):
                yield frames.push(payload)
            while cut and cut.in_character and not is_inside_a_character(frames.rest):
                for payload in connection.payloads(1):
                    yield frames.push(payload)
                if connection.is_ended:
                    return
            if cut and not connection.is_ended:
                self.cut_tails.append(frames.rest)
                connection.close(cut.how)

    def take(self, event: Event) -> None:
        if event.is_empty:
            return
        if event.error:
            raise Unexpected(f"{self.route.name}: {event.raw.decode()}")
        if self.route.is_known(event, self.events):
            return
        self.events.append(event)
        self.arrivals_s.append(time.monotonic())
