"""Pure ASGI wrappers around every request: its size, its id, its line in the log."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import Callable

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamwell.core.errors import ShuttingDown
from streamwell.server.errors import answer_of, error_response

log = structlog.get_logger()

#: Asked for every few seconds by whoever watches the server; not worth a line each.
_PROBES = frozenset({"/live", "/ready", "/health", "/metrics"})
#: What begins an answer; accepting a WebSocket is one too.
_STARTS = frozenset({"http.response.start", "websocket.http.response.start", "websocket.accept"})
#: What is logged when the client leaves before an answer.
_LEFT = 499
#: Seconds that a client whose body is too large may go on sending it, in all and from one piece to
#: the next; nothing of it is kept.
_LINGER_S, _PIECE_S = 30.0, 5.0
#: Characters of a path in a line of the log.
_LONGEST_PATH = 1000
_SAFE_ID = re.compile(rb"[A-Za-z0-9._:/@+=-]{1,128}")


class BodyLimit:
    """Reads a request's body, refusing one that is too large before it is held in memory.

    Of strangers none is read: the application, which gets an empty one, will refuse them.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, is_known: Callable[[Scope], bool]) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._is_known = is_known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        if not self._is_known(scope):
            await self._app(scope, _replay(b"", receive), send)
            return
        body = None if self._declared(scope) > self._max_bytes else await self._read(receive)
        if body is None:
            await self._refuse(receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    async def _read(self, receive: Receive) -> bytes | None:
        """The whole body, or `None` when it grows over the limit."""
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self._max_bytes:
                return None
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                return bytes(body)

    async def _refuse(self, receive: Receive, send: Send) -> None:
        """Answer at once, but end the connection only when its client has stopped sending.

        Else it would be reset, and many clients would never see the answer.
        """
        refusal = error_response(
            413, f"the body is over {self._max_bytes} bytes", code="request_too_large"
        )
        headers = [*refusal.raw_headers, (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": refusal.body, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                while (await asyncio.wait_for(receive(), _PIECE_S)).get("more_body", False):
                    pass
        await send({"type": "http.response.body"})

    @staticmethod
    def _declared(scope: Scope) -> int:
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit():
                return int(value)
        return 0


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the body once, then what the connection says (that the client has gone)."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


class RequestLog:
    """Gives each request an id, times it, and writes one line when it is over.

    A WebSocket is one request, from its handshake to its close.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        started_s = time.perf_counter()
        request_id = _request_id(scope)
        status: int | None = None

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] in _STARTS:
                status = message.get("status", 101)
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", request_id),
                    (b"openai-processing-ms", b"%d" % round(_ms_since(started_s))),
                ]
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except asyncio.CancelledError:  # the process ends
            if status is not None:
                raise
            await answer_of(ShuttingDown())(scope, receive, send_with_headers)
        finally:
            write = log.debug if scope["path"] in _PROBES else log.info
            write(
                "request",
                method=scope.get("method", "WEBSOCKET"),
                path=scope["path"][:_LONGEST_PATH],
                status=status or _LEFT,
                request_id=request_id.decode(),
                duration_ms=round(_ms_since(started_s), 1),
            )


def _ms_since(start_s: float) -> float:
    return 1000 * (time.perf_counter() - start_s)


def _request_id(scope: Scope) -> bytes:
    """The caller's own id when it is harmless, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SAFE_ID.fullmatch(value):
            return bytes(value)
    return b"req_" + secrets.token_hex(12).encode()
