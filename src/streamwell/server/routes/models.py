"""`/v1/models`: what is served, also while it is still loading."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from streamwell.core.errors import ModelNotFound
from streamwell.server.deps import ClosedRoute, ServicesDep, TenantDep
from streamwell.service.models import ServedModel

router = APIRouter(route_class=ClosedRoute, tags=["models"])


@router.get("/models")
async def list_models(services: ServicesDep, _tenant: TenantDep) -> dict[str, Any]:
    """Every name of every model."""
    cards = [_card(model, name) for model in services.models.models for name in model.names]
    return {"object": "list", "data": cards}


@router.get("/models/{model_id:path}")
async def get_model(model_id: str, services: ServicesDep, _tenant: TenantDep) -> dict[str, Any]:
    """One model; ids may contain slashes."""
    if not model_id:
        raise ModelNotFound(model_id)  # the empty name means the default in requests alone
    return _card(services.models.find(model_id), model_id)


def _card(model: ServedModel, name: str) -> dict[str, Any]:
    max_model_len = model.info.max_model_len if model.info else None
    return {
        "id": name,
        "object": "model",
        "created": model.created_s,
        "owned_by": "streamwell",
        "max_model_len": max_model_len,
        "context_length": max_model_len,
        "status": model.engine.status().state,
    }
