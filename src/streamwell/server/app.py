"""The ASGI application: routes, wrappers and error table around the services."""

from __future__ import annotations

from fastapi import Depends, FastAPI
from starlette.types import ASGIApp

from streamwell.server.deps import Services, authorize
from streamwell.server.errors import add_error_handlers
from streamwell.server.limits import BodyLimit, RequestLog
from streamwell.server.routes import completions, models, ops, page


def create_app(services: Services, *, max_body_bytes: int) -> ASGIApp:
    """The application; everything but health and the page asks for a key, if the server has any.

    The services are opened and closed by whoever runs it.
    """
    app = FastAPI(
        title="Streamwell",
        docs_url=None,  # the stock page loads its scripts from the internet
        redoc_url=None,
        openapi_url=None,
    )
    app.state.services = services
    app.include_router(page.router)
    app.include_router(ops.health_router)
    closed = [Depends(authorize)]
    app.include_router(ops.router, dependencies=closed)
    for prefix in ("/v1", ""):
        app.include_router(completions.router, prefix=prefix, dependencies=closed)
        app.include_router(models.router, prefix=prefix, dependencies=closed)
    add_error_handlers(app)
    return RequestLog(BodyLimit(app, max_body_bytes))
