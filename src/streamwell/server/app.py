"""The ASGI application: routes, wrappers and error table around the services."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fastapi import Depends, FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from streamwell.server.deps import Services, authorize, authorize_reader, sent_key
from streamwell.server.errors import add_error_handlers, error_response
from streamwell.server.hosts import HostCheck
from streamwell.server.limits import BodyLimit, RequestLog
from streamwell.server.page import Page
from streamwell.server.routes import (
    completions,
    conversations,
    models,
    ops,
    prompts,
    responses,
    runs,
    stored,
    ws,
)

#: What pages of other origins may send and read. Keys come in headers, so no credentials.
_CORS: dict[str, Any] = {
    "allow_methods": ["GET", "POST", "DELETE"],
    "allow_headers": ["*"],  # clients have some of their own
    "expose_headers": ["retry-after", "x-request-id", "x-run-id"],
}


def create_app(
    services: Services,
    *,
    max_body_bytes: int,
    allowed_hosts: Collection[str] | None = None,
    cors_origins: Collection[str] = (),
) -> ASGIApp:
    """The application; everything but health and the page asks for a key, if the server has any.

    The services are opened and closed by whoever runs it. `allowed_hosts` are names beside those
    of this machine by which it may be called; `None`: by any. Pages of `cors_origins` may use it.
    """
    app = _with_routes()
    app.state.services = services
    add_error_handlers(app)

    def has_key(scope: Scope) -> bool:
        return services.keys.tenant(sent_key(HTTPConnection(scope))) is not None

    limited: ASGIApp = Page(BodyLimit(app, max_body_bytes, has_key))
    if cors_origins:
        limited = CORSMiddleware(limited, allow_origins=cors_origins, **_CORS)
    return RequestLog(limited if allowed_hosts is None else HostCheck(limited, allowed_hosts))


def api_schema() -> dict[str, Any]:
    """The OpenAPI document of the routes; WebSockets and the page are not in it.

    Its responses are FastAPI's guesses: what is answered, and which errors, is in `docs/api.md`.
    """
    return _with_routes().openapi()


def _with_routes() -> FastAPI:
    """An application of all routes, closed but for health."""
    app = FastAPI(
        title="Streamwell",
        docs_url=None,  # the stock page loads its scripts from the internet
        redoc_url=None,
        openapi_url=None,
    )
    app.router.default = _not_found
    app.include_router(ops.health_router)
    closed = [Depends(authorize)]
    app.include_router(ops.router, dependencies=closed)
    app.include_router(runs.router, prefix="/v1", dependencies=closed)
    app.include_router(prompts.router, dependencies=closed)
    app.include_router(ws.router, prefix="/v1")  # these two look at keys by themselves
    app.include_router(ws.root_router)
    to_readers = [Depends(authorize_reader)]
    app.include_router(prompts.reader_router, dependencies=to_readers)
    app.include_router(runs.reader_router, prefix="/v1", dependencies=to_readers)
    for prefix in ("/v1", ""):
        app.include_router(completions.router, prefix=prefix, dependencies=closed)
        app.include_router(completions.reader_router, prefix=prefix, dependencies=to_readers)
        app.include_router(stored.router, prefix=prefix, dependencies=closed)
        app.include_router(responses.router, prefix=prefix, dependencies=closed)
        app.include_router(responses.reader_router, prefix=prefix, dependencies=to_readers)
        app.include_router(conversations.router, prefix=prefix, dependencies=closed)
        app.include_router(models.router, prefix=prefix, dependencies=closed)
        app.include_router(models.operators_router, prefix=prefix, dependencies=closed)
    return app


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """For handshakes of WebSockets, too: Starlette's own answer to those is an empty 403."""
    await error_response(404, "Not Found", code="not_found")(scope, receive, send)
