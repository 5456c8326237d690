"""What routes depend on: the services of this server, and who is calling."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection
from starlette.responses import Response

from streamwell.server.convert.dialects import OPENAI, Dialect
from streamwell.server.keys import KeyRing
from streamwell.server.presets import Presets
from streamwell.service.conversations import Conversations
from streamwell.service.models import ModelTable
from streamwell.service.runs import RunService
from streamwell.telemetry import Metrics

log = structlog.get_logger()


class UnknownFields:
    """Logs the name of each unknown request field once, so that a typo can be found."""

    _MAX_NAMES = 1000
    _MAX_CHARS = 80

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def note(self, names: Iterable[str]) -> None:
        for name in (name[: self._MAX_CHARS] for name in names):
            if name not in self._seen and len(self._seen) < self._MAX_NAMES:
                self._seen.add(name)
                log.info("unknown request field is ignored", field=name)


@dataclass(frozen=True, slots=True)
class Services:
    """Everything behind the routes."""

    models: ModelTable
    runs: RunService
    conversations: Conversations
    metrics: Metrics
    keys: KeyRing
    unknown_fields: UnknownFields
    presets: Presets
    #: Seconds of silence after which a stream gets a comment.
    ping_s: float
    version: str
    #: How chat completions are spoken.
    chat_dialect: Dialect = OPENAI


def get_services(connection: HTTPConnection) -> Services:
    services: Services = connection.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(get_services)]


def sent_key(connection: HTTPConnection) -> str | None:
    """The API key in the headers, right or wrong."""
    scheme, _, bearer = connection.headers.get("authorization", "").partition(" ")
    return bearer.strip() if scheme.lower() == "bearer" else connection.headers.get("x-api-key")


def authorize(request: Request, services: ServicesDep) -> str:
    """The caller's tenant.

    Raises:
        HTTPException: 401, no key of this server was sent.
    """
    tenant = services.keys.tenant(sent_key(request))
    if tenant is None:
        raise HTTPException(401, "no valid API key was sent", {"WWW-Authenticate": "Bearer"})
    return tenant


TenantDep = Annotated[str, Depends(authorize)]


def authorize_operator(tenant: TenantDep, services: ServicesDep) -> None:
    """Let those in who may change what is served.

    Raises:
        HTTPException: 403, the caller's key is not an operator's.
    """
    if not services.keys.is_operator(tenant):
        raise HTTPException(403, "this wants a key that the server was given as --admin-key")


def authorize_reader(request: Request, services: ServicesDep) -> str:
    """The caller's tenant, by a key, or by a ticket in the URL.

    Raises:
        HTTPException: 401, neither opens anything.
    """
    ticket = request.query_params.get("ticket")
    if ticket is None:
        return authorize(request, services)
    tenant = services.keys.tenant_of_ticket(ticket)
    if tenant is None:
        raise HTTPException(401, "the ticket is not valid, or no longer")
    return tenant


ReaderTenantDep = Annotated[str, Depends(authorize_reader)]


class ClosedRoute(APIRoute):
    """A route that asks for the key before it parses the request."""

    authorize = staticmethod(authorize)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def check_first(request: Request) -> Response:
            self.authorize(request, get_services(request))
            return await handler(request)

        return check_first


class ReaderRoute(ClosedRoute):
    """A route that a page without a key may ask with a ticket."""

    authorize = staticmethod(authorize_reader)


def routers(tag: str) -> tuple[APIRouter, APIRouter]:
    """A router for routes that want a key, and one for those that are content with a ticket."""
    closed = APIRouter(route_class=ClosedRoute, tags=[tag])
    return closed, APIRouter(route_class=ReaderRoute, tags=[tag])
