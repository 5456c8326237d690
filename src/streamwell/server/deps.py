"""What routes depend on: the services of this server, and who is calling."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any

import structlog
from fastapi import Depends, HTTPException, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from streamwell.service.models import ModelTable
from streamwell.service.runs import RunService
from streamwell.telemetry import Metrics

log = structlog.get_logger()


class KeyRing:
    """The API keys of this server, as SHA-256 digests; without any, everybody may come in."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._digests = tuple(hashlib.sha256(key.encode()).digest() for key in keys)

    def tenant(self, key: str | None) -> str | None:
        """The tenant of a key; `None` when it opens nothing. Looks at every key, always."""
        if not self._digests:
            return ""
        digest = hashlib.sha256((key or "").encode("utf-8", "surrogatepass")).digest()
        matches = [known for known in self._digests if hmac.compare_digest(known, digest)]
        return matches[0].hex()[:16] if matches else None


class UnknownFields:
    """Logs the name of each unknown request field once, so that a typo can be found."""

    _MAX_NAMES = 1000

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def note(self, names: list[str]) -> None:
        for name in names:
            if name not in self._seen and len(self._seen) < self._MAX_NAMES:
                self._seen.add(name)
                log.info("unknown request field is ignored", field=name[:80])


@dataclass(frozen=True, slots=True)
class Services:
    """Everything behind the routes."""

    models: ModelTable
    runs: RunService
    metrics: Metrics
    keys: KeyRing
    unknown_fields: UnknownFields
    #: Seconds of silence after which a stream gets a comment.
    ping_s: float
    version: str


def get_services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(get_services)]


def authorize(request: Request, services: ServicesDep) -> str:
    """The caller's tenant.

    Raises:
        HTTPException: 401, no key of this server was sent.
    """
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    key = bearer.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key")
    tenant = services.keys.tenant(key)
    if tenant is None:
        raise HTTPException(401, "no valid API key was sent", {"WWW-Authenticate": "Bearer"})
    return tenant


TenantDep = Annotated[str, Depends(authorize)]


class ClosedRoute(APIRoute):
    """A route that asks for the key before it parses the body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def check_first(request: Request) -> Response:
            authorize(request, get_services(request))
            return await handler(request)

        return check_first
