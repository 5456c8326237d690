"""WebSocket frames on the wire: uvicorn's protocol, with bounds where it has none."""

from __future__ import annotations

import asyncio
import logging

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from streamwell.server.timed_writes import TimedWrites

#: Largest message, in bytes, whatever frames it comes in.
MAX_MESSAGE_BYTES = 1 << 20
#: Frames of one message; its bytes alone would let empty ones go on for ever.
MAX_FRAGMENTS = 1024
#: Seconds between our pings, and until the answer must be there.
PING_S = 20.0
#: Pings and pongs of a client in the time between two of ours.
MAX_CONTROL_FRAMES = 256
#: Messages that wait for the application; while more do, nothing is read.
MAX_WAITING_MESSAGES = 8
_MAX_UNREAD_BYTES = 1 << 17
_POLICY = 1008
_LINGER_S = 2.0


#: What uvicorn says of text that is no UTF-8, with a traceback, of each handshake that was
#: refused with a body, and of each answer that is cut because plain text has no place for an error.
_NO_NEWS = ("Invalid UTF-8", "ASGI callable returned without completing")


def quieten() -> None:
    """Let no client write errors into the log that are its own."""
    logging.getLogger("uvicorn.error").addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_NO_NEWS)


class WebSocketProtocol(TimedWrites, WebSocketsSansIOProtocol):
    """Messages to the application and back."""

    _num_fragments = 0
    _num_control_frames = 0
    _is_refused = False

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # headers that are too long: websockets has an answer, uvicorn does not look for it
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def handle_text(self, event: Frame) -> None:
        self._num_fragments = 1
        super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        self._num_fragments = 1
        super().handle_bytes(event)

    def handle_cont(self, event: Frame) -> None:
        self._num_fragments += 1
        if self._num_fragments > MAX_FRAGMENTS:
            self._refuse("a message of too many frames")
        else:
            super().handle_cont(event)

    def handle_ping(self) -> None:
        if self._is_flood():
            self._refuse("too many pings")
        else:
            super().handle_ping()

    def handle_pong(self, event: Frame) -> None:
        if self._is_flood():
            self._refuse("too many pongs")
        else:
            super().handle_pong(event)

    def send_receive_event_to_app(self) -> None:
        """Read on: the client's pongs, and its leaving, come behind its messages."""
        super().send_receive_event_to_app()
        if self.read_paused and self.queue.qsize() < MAX_WAITING_MESSAGES:
            self.read_paused = False
            self.transport.resume_reading()

    def send_keepalive_ping(self) -> None:
        self._num_control_frames = 0
        super().send_keepalive_ping()

    def keepalive_timeout(self) -> None:
        if self.read_paused:  # the answer may be there, and cannot be seen
            self.pong_timer = self.pending_ping_payload = None
            self.schedule_ping()
            return
        super().keepalive_timeout()
        # what waits to be sent would keep the connection of a client that reads no more
        self.transport.abort()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        self.watch_writes()

    def handle_parser_exception(self) -> None:
        """Say why, and read on for a moment.

        To close with something unread resets the connection, and takes the reason away from the
        client with it.
        """
        if self._is_refused or self.conn.close_sent is None:
            return
        self._is_refused = self.close_sent = True
        close = self.conn.close_sent
        self.queue.put_nowait(
            {"type": "websocket.disconnect", "code": close.code, "reason": close.reason}
        )
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.write_eof()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(_LINGER_S, self.transport.abort)

    def _is_flood(self) -> bool:
        self._num_control_frames += 1
        unread = self.transport.get_write_buffer_size()
        return self._num_control_frames > MAX_CONTROL_FRAMES or unread > _MAX_UNREAD_BYTES

    def _refuse(self, reason: str) -> None:
        if not self.close_sent:  # else more of what was read along with it
            self.conn.fail(_POLICY, reason)
            self.handle_parser_exception()
