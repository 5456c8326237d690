"""A client of `/v1/ws` that goes on after every cut; cuts are at bytes of the raw connection."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

from client import Follower, PlannedCut, Unexpected
from harness import DEADLINE_S, HOST
from routes import Event, Route
from websockets.client import ClientProtocol
from websockets.frames import Frame
from websockets.protocol import OPEN
from websockets.uri import parse_uri

_RECEIVE_BYTES = 1 << 16


class SocketRoute(Route):
    """Prompts of a `/v1/ws`; a message becomes an event with the id that it stands for."""

    name = "/v1/ws"

    def __init__(self, body: dict[str, Any], key: str) -> None:
        self._start = {"type": "prompt", "idempotency_key": key, **body}

    def message(self, last: Event | None) -> bytes:
        if last is None:
            return json.dumps(self._start).encode()
        resume = {"type": "resume", "run": last.run_id, "seq": last.place[0]}
        return json.dumps(resume).encode()

    def text_of(self, event: Event) -> str:
        return event.json.get("text") or ""

    def is_end(self, event: Event) -> bool:
        return bool(event.json["type"] == "done")


class SocketFollower(Follower):
    """One run, over one WebSocket after the other."""

    route: SocketRoute

    @property
    def num_breaks(self) -> int:
        """The last word of a choice, before the end, is in the log and not on the wire."""
        seqs = [event.place[0] for event in self.events]
        return sum(
            seq != expected
            for seq, expected in zip(seqs, [*range(len(seqs) - 1), len(seqs)], strict=True)
        )

    def replay(self) -> list[Event]:
        again = SocketFollower(self._port, self.route)
        first = json.dumps({"type": "resume", "run": self.run_id, "seq": -1}).encode()
        with _Connection(self._port, first) as connection:
            for events in connection.pieces(None):
                for event in events:
                    again.take(event)
                if again.is_ended:
                    break
        return again.events

    def _pieces(self, last: Event | None, cut: PlannedCut | None) -> Iterator[list[Event]]:
        with _Connection(self._port, self.route.message(last)) as connection:
            self.num_connections += 1
            for events in connection.pieces(cut.after_bytes if cut else None):
                yield events
                if self.is_ended:
                    return
            if cut:
                self.cut_tails.append(connection.tail)
                connection.cut(cut)


class _Connection:
    """A WebSocket with one message sent."""

    def __init__(self, port: int, message: bytes) -> None:
        self._protocol = ClientProtocol(parse_uri(f"ws://{HOST}:{port}/v1/ws"))
        #: Bytes since the last complete message.
        self.tail = b""
        self._socket = socket.create_connection((HOST, port), DEADLINE_S)
        try:
            self._shake_hands()
            self._protocol.send_text(message)
            self._flush()
        except BaseException:
            self._socket.close()
            raise

    def _shake_hands(self) -> None:
        self._protocol.send_request(self._protocol.connect())
        self._flush()
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self._receive(1)
        self._protocol.receive_data(head)
        if self._protocol.state is not OPEN:
            raise Unexpected(f"/v1/ws: {self._protocol.handshake_exc}")
        self._protocol.events_received()

    def pieces(self, max_bytes: int | None) -> Iterator[list[Event]]:
        """The messages of each piece that comes, for so many bytes."""
        left = max_bytes
        while left is None or left > 0:
            data = self._receive(_RECEIVE_BYTES if left is None else min(left, _RECEIVE_BYTES))
            left = None if left is None else left - len(data)
            self._protocol.receive_data(data)
            frames = [f for f in self._protocol.events_received() if isinstance(f, Frame)]
            self.tail = b"" if frames else self.tail + data
            yield [_event(bytes(frame.data)) for frame in frames]

    def cut(self, cut: PlannedCut) -> None:
        if cut.how == "rst":
            linger = struct.pack("ii", 1, 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._socket.close()

    def _receive(self, max_bytes: int) -> bytes:
        data = self._socket.recv(max_bytes)
        if not data:
            raise ConnectionError("the connection was closed")
        return data

    def _flush(self) -> None:
        self._socket.sendall(b"".join(self._protocol.data_to_send()))

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def _event(message: bytes) -> Event:
    fields = json.loads(message)
    place = f"id: {fields['run']}:{fields['seq']}\n".encode() if "seq" in fields else b""
    return Event(place + b"data: " + message)
