"""What answers while the application is put together: the page at once, all else later."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from streamwell.core.errors import ShuttingDown
from streamwell.server.error_body import SERVER, error_body
from streamwell.server.page import Page

#: What an orchestrator asks, and what it is told before the application is there.
_STARTING: dict[str, Any] = {"status": "starting", "stage": "application", "progress": 0.0}
_HEALTH: dict[str, tuple[int, dict[str, Any]]] = {
    "/live": (200, {"status": "alive"}),
    "/health": (503, _STARTING),
    "/ready": (503, _STARTING),
}
_LEAVING = error_body(str(ShuttingDown()), SERVER, code=ShuttingDown.code)


class Front:
    """An application that may be asked before it is there.

    The page and its files are the same for everybody, and health needs nothing. Whatever else is
    asked for waits, as it would for a port that is not open yet.
    """

    def __init__(self) -> None:
        self._app: ASGIApp | None = None
        self._is_decided = asyncio.Event()
        self._page = Page(self._before)

    def open(self, app: ASGIApp) -> None:
        """From here on this application answers, also what waits."""
        self._app = app
        self._is_decided.set()

    def close(self) -> None:
        """Refuse what waits, and what is still to come, unless the application is there."""
        if self._app is None:
            self.open(_refuse)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._app or self._page)(scope, receive, send)

    async def _before(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in _HEALTH:
            await _answer(send, *_HEALTH[scope["path"]])
            return
        await self._is_decided.wait()
        assert self._app is not None
        await self._app(scope, receive, send)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await _answer(send, 503, _LEAVING)
    else:
        await send({"type": "websocket.close", "code": 1012, "reason": str(ShuttingDown())})


async def _answer(send: Send, status: int, body: dict[str, Any]) -> None:
    content = json.dumps(body).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        *([(b"retry-after", b"1")] if status == 503 else []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
