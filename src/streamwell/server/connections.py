"""HTTP on a connection: h11, and uvicorn's protocol over it, with what we do in another way."""

from __future__ import annotations

import json
import re
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamwell.server.error_body import INVALID, error_body
from streamwell.server.timed_requests import TimedRequests
from streamwell.server.timed_writes import TimedWrites

#: Request line and headers together.
MAX_HEADER_BYTES = 16 * 1024
_URL = re.compile(rb"https?://(?P<host>[^/?]*)(?P<path>.*)", re.IGNORECASE)
#: Characters of what h11 says of bytes that are no request; it may quote them.
_LONGEST_REASON = 200


class Connection(h11.Connection):
    """h11, but the chunks of a body are framed at once: there is nothing about them to check.

    What is sent is the same. h11 takes ten times as long for it, and that for every token. Requests
    may name their target as to a proxy, and may not say in two ways how long they are.
    """

    _is_chunked = False
    #: Why the client's bytes were refused.
    refusal: h11.RemoteProtocolError | None = None
    #: The answer to the latest request has no body.
    is_head = False

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            event = super().next_event()
            if not isinstance(event, h11.Request):
                return event
            self.is_head = event.method == b"HEAD"
            return _checked(event)
        except h11.RemoteProtocolError as error:
            self.refusal = error
            raise

    def send(self, event: h11.Event) -> bytes | None:  # type: ignore[override] # h11 has overloads
        if self._is_chunked and isinstance(event, h11.Data) and event.data:
            return b"%x\r\n%b\r\n" % (len(event.data), event.data)
        sent = super().send(event)
        if isinstance(event, h11.Response):
            self._is_chunked = b"\r\nTransfer-Encoding: chunked\r\n" in (sent or b"")
        elif isinstance(event, h11.EndOfMessage):
            self._is_chunked = False
        return sent


def _checked(request: h11.Request) -> h11.Request:
    """The request, with its target as if to this server.

    Raises:
        h11.RemoteProtocolError: a proxy before us might see another request in it (RFC 9112, 6.3).
    """
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in request.headers}:
        raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding contradict each other")
    url = _URL.fullmatch(request.target)
    if url is None:
        return request
    # servers have to take it (RFC 9112, 3.2.2)
    return h11.Request(
        method=request.method,
        target=url["path"] if url["path"].startswith(b"/") else b"/" + url["path"],
        headers=[(b"host", url["host"]), *((k, v) for k, v in request.headers if k != b"host")],
        http_version=request.http_version,
    )


class Protocol(TimedWrites, TimedRequests, H11Protocol):
    """uvicorn's protocol on our connection."""

    conn: Connection

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - passed on as they come
        super().__init__(*args, **options)
        self.conn = Connection(h11.SERVER, MAX_HEADER_BYTES)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.watch_writes()

    def send_400_response(self, msg: str) -> None:
        """As uvicorn's, in the form of all other errors and with a reason, or 431 for long headers.

        An answer that has begun is cut.

        Args:
            msg: what is told where h11 gave no reason.
        """
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        refusal = self.conn.refusal
        reason = f"this is no request of HTTP/1.1: {refusal!s:.{_LONGEST_REASON}}"
        status = 400 if refusal is None else refusal.error_status_hint
        body = json.dumps(error_body(msg if refusal is None else reason, INVALID)).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        response = h11.Response(status_code=status, headers=headers)
        data = h11.Data(data=b"" if self.conn.is_head else body)
        for event in (response, data, h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
