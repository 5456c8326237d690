"""`/v1/models`: what is served, also while it is loading; load and unload models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
from fastapi import APIRouter, Depends
from starlette.responses import Response, StreamingResponse

from streamwell.core.errors import LoadError, ModelNotFound
from streamwell.server.deps import (
    ClosedRoute,
    Services,
    ServicesDep,
    TenantDep,
    authorize_operator,
)
from streamwell.server.errors import JSONBytes, describe
from streamwell.server.run_response import HEADERS
from streamwell.server.schemas.models import LoadRequest, UnloadRequest
from streamwell.service.lifecycle import Phase
from streamwell.service.models import Served
from streamwell.service.served_model import ServedModel

router = APIRouter(route_class=ClosedRoute, tags=["models"])
operators_router = APIRouter(
    route_class=ClosedRoute, tags=["models"], dependencies=[Depends(authorize_operator)]
)

#: A stream looks so often how far a model is, and says so at least so often, in seconds.
_LOOK_S, _SAY_S = 0.1, 5.0


@router.get("/models")
async def list_models(
    services: ServicesDep, tenant: TenantDep, *, fits: bool = False
) -> dict[str, Any]:
    """Every name of every model; on request with whether there is memory to load it."""
    cards = []
    for model in services.models.models:
        fit = {"fits": await _fits(model)} if fits else {}
        cards += [_card(model, name, services, tenant) | fit for name in model.names]
    return {"object": "list", "data": cards}


async def _fits(model: Served) -> bool | None:
    """Of a model that is there already, and of an adapter, it is no question: `None`."""
    if not isinstance(model, ServedModel) or model.phase is Phase.LOADED:
        return None
    return await asyncio.to_thread(model.fits)


@router.get("/models/{model_id:path}")
async def get_model(model_id: str, services: ServicesDep, tenant: TenantDep) -> dict[str, Any]:
    """One model; ids may contain slashes."""
    if not model_id:
        raise ModelNotFound(model_id)  # the empty name means the default in requests alone
    return _card(services.models.find(model_id), model_id, services, tenant)


@operators_router.post("/models/load", response_model=None)
async def load_model(body: LoadRequest, services: ServicesDep, tenant: TenantDep) -> Response:
    """Load a model; it goes on when the client leaves."""
    services.unknown_fields.note(body.model_extra or ())
    model = await services.models.discover(body.model)
    if body.base is not None:
        services.models.rebase(model, body.base)
    loading = model.load()
    if body.stream:
        events = _progress(model, loading, body.model, services, tenant)
        return StreamingResponse(events, media_type="text/event-stream", headers=HEADERS)
    await asyncio.shield(loading)
    return JSONBytes(_card(model, body.model, services, tenant))


@operators_router.post("/models/unload", response_model=None)
async def unload_model(body: UnloadRequest, services: ServicesDep, tenant: TenantDep) -> Response:
    """Unload a model when the runs that use it have ended; it goes on when the client leaves."""
    services.unknown_fields.note(body.model_extra or ())
    model = services.models.find(body.model)
    await asyncio.shield(model.unload())
    return JSONBytes(_card(model, body.model, services, tenant))


async def _progress(
    model: Served, loading: asyncio.Task[None], name: str, services: Services, tenant: str
) -> AsyncIterator[bytes]:
    """Events of a load: `loading` with stage and progress, then the model's card, or an error."""
    said: dict[str, Any] = {}
    said_s, loop = 0.0, asyncio.get_running_loop()
    while not loading.done():
        status = model.engine.status()
        news = {"stage": status.stage or "waiting", "progress": round(status.progress, 3)}
        if news != said or loop.time() >= said_s + _SAY_S:
            said, said_s = news, loop.time()
            yield _event({"object": "model.load", "id": name, "status": "loading"} | news)
        await asyncio.wait([loading], timeout=_LOOK_S)
    try:
        await loading
    except LoadError as error:
        yield _event(describe(error)[1])
    else:
        yield _event(_card(model, name, services, tenant))


def _event(payload: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(payload)


def _card(model: Served, name: str, services: Services, tenant: str) -> dict[str, Any]:
    """What everybody sees of a model; where it lies is for operators."""
    info, facts = model.info, model.facts
    card = {
        "id": name,
        "object": "model",
        "created": model.created_s,
        "owned_by": "streamwell",
        "max_model_len": info.max_model_len if info else None,
        "max_input_len": info.max_input_len if info else None,
        "context_length": info.max_model_len if info else facts.context_length,
        "status": model.state,
        "loads_on_request": model.comes_back,
        "parent": model.parent,
        "family": facts.family,
        "size_bytes": facts.size_bytes,
    }
    if services.keys.is_operator(tenant):
        card |= {"path": facts.path, "error": model.error}
    return card
