"""What answers while the application is put together: the page at once, all else later."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from streamwell.server.page import Page


class Front:
    """An application that may be asked before it is there.

    The page and its files are the same for everybody. Whatever else is asked for waits, as it
    would for a port that is not open yet.
    """

    def __init__(self) -> None:
        self._app: ASGIApp | None = None
        self._is_open = asyncio.Event()
        self._page = Page(self._when_open)

    def open(self, app: ASGIApp) -> None:
        """From here on this application answers, also what waits."""
        self._app = app
        self._is_open.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._app or self._page)(scope, receive, send)

    async def _when_open(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._is_open.wait()
        assert self._app is not None
        await self._app(scope, receive, send)
