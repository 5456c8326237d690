"""What Ray's HTTP proxy does before it forwards a request."""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

#: Headers that Ray takes as orders: go on when the client has left; end the request after a time.
ORDERS = frozenset({b"x-request-disconnect-disabled", b"x-request-timeout-seconds"})


class WithoutOrders:
    """Drops headers by which a client could tell Ray what to do."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "headers" in scope:
            kept = [(name, value) for name, value in scope["headers"] if name not in ORDERS]
            scope = {**scope, "headers": kept}
        await self._app(scope, receive, send)


def middlewares() -> list[Middleware]:
    """Named by `RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH`."""
    return [Middleware(WithoutOrders)]
