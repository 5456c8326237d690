"""For operators: health, readiness, metrics, version."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from streamwell.core.errors import StoreFailed
from streamwell.server.deps import ServicesDep, TenantDep
from streamwell.server.errors import JSONBytes

#: Open without a key: orchestrators have none.
health_router = APIRouter(tags=["health"])
router = APIRouter(tags=["operations"])


@health_router.head("/live", include_in_schema=False)
@health_router.get("/live")
async def live() -> dict[str, str]:
    """The event loop turns."""
    return {"status": "alive"}


@health_router.head("/health", include_in_schema=False)
@health_router.head("/ready", include_in_schema=False)
@health_router.get("/health")
@health_router.get("/ready")
async def ready(services: ServicesDep) -> JSONBytes:
    """200 when requests are served; else 503 with the stage and the progress of loading.

    A model that is loaded later, or was unloaded, does not count.
    """
    if services.runs.is_draining:
        return _not_ready({"status": "draining"})
    if services.runs.log.is_failing:  # more is said in the server's own log: it may name hosts
        return _not_ready({"status": "store_failed", "error": str(StoreFailed())})
    for model in services.models.models:
        if model.is_expected and not model.is_ready:
            status = model.engine.status()
            return _not_ready(
                {
                    "status": model.state,
                    "model": model.names[0],
                    "stage": status.stage,
                    "progress": round(status.progress, 3),
                    # it may name places on this machine, and anybody may ask
                    "error": model.error or status.error if services.keys.is_open else None,
                }
            )
    return JSONBytes({"status": "ready"})


def _not_ready(body: dict[str, Any]) -> JSONBytes:
    return JSONBytes(body, 503, headers={"Retry-After": "1"})


@router.get("/metrics")
async def metrics(services: ServicesDep, _tenant: TenantDep) -> Response:
    """Prometheus text."""
    return Response(services.metrics.render(), media_type="text/plain; version=0.0.4")


@router.get("/version")
async def version(services: ServicesDep, _tenant: TenantDep) -> dict[str, str]:
    """The version of this server."""
    return {"version": services.version}
