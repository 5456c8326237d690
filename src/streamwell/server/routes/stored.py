"""Chat completions that were created with `store: true`: listed, noted on, and deleted."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from streamwell.core.errors import InvalidRequest, RunNotFound
from streamwell.core.types import RunKind, RunSpec
from streamwell.server.convert.messages import list_dict, page_of
from streamwell.server.convert.openai import completion_dict, stored_messages
from streamwell.server.deps import ClosedRoute, Services, ServicesDep, TenantDep
from streamwell.server.errors import JSONBytes
from streamwell.server.paging import OldestFirstDep
from streamwell.server.schemas.conversations import UpdateRequest
from streamwell.server.schemas.fields import MAX_METADATA_PAIRS
from streamwell.service.listing import list_runs

router = APIRouter(route_class=ClosedRoute, prefix="/chat/completions", tags=["stored"])

_METADATA = re.compile(r"metadata\[(.+)\]", re.DOTALL)


@router.get("", response_model=None)
async def list_completions(
    request: Request,
    services: ServicesDep,
    tenant: TenantDep,
    query: OldestFirstDep,
    model: Annotated[str, Query(max_length=512, pattern=r"^[^\x00]*$")] = "",
) -> Response:
    """The caller's stored completions, those that are still generated included."""
    log = services.runs.log
    metadata = _wanted_metadata(request)
    specs = await list_runs(log, tenant, RunKind.CHAT, query.page, model=model, metadata=metadata)
    return JSONBytes(list_dict([await _completion(spec, services) for spec in specs], query.limit))


@router.get("/{run_id}/messages", response_model=None)
async def list_messages(
    run_id: str, services: ServicesDep, tenant: TenantDep, query: OldestFirstDep
) -> Response:
    """The messages that a stored completion answers."""
    spec = await _find(run_id, tenant, services)
    page = page_of(
        stored_messages(spec),
        limit=query.limit,
        after=query.after,
        newest_first=query.newest_first,
    )
    return JSONBytes(page)


@router.post("/{run_id}", response_model=None)
async def update_completion(
    run_id: str, body: UpdateRequest, services: ServicesDep, tenant: TenantDep
) -> Response:
    """Replace the metadata of a stored completion."""
    services.unknown_fields.note(body.model_extra or ())
    await _find(run_id, tenant, services)
    metadata = tuple((body.metadata or {}).items())
    spec = await services.runs.update_metadata(run_id, tenant, metadata)
    return JSONBytes(await _completion(spec, services))


@router.delete("/{run_id}", response_model=None)
async def delete_completion(run_id: str, services: ServicesDep, tenant: TenantDep) -> Response:
    """Delete a stored completion; one that has not ended is cancelled first."""
    await _find(run_id, tenant, services)
    await services.runs.delete(run_id, tenant)
    return JSONBytes({"id": run_id, "object": "chat.completion.deleted", "deleted": True})


async def _find(run_id: str, tenant: str, services: Services) -> RunSpec:
    spec = await services.runs.find(run_id, tenant)
    if spec.kind is not RunKind.CHAT or not spec.terms.store:
        raise RunNotFound
    return spec


async def _completion(spec: RunSpec, services: Services) -> dict[str, Any]:
    return completion_dict(spec, await services.runs.log.events(spec.run_id))


def _wanted_metadata(request: Request) -> frozenset[tuple[str, str]]:
    """`?metadata[key]=value`, any number of times up to as many as there can be."""
    pairs = []
    for name, value in request.query_params.multi_items():
        if match := _METADATA.fullmatch(name):
            pairs.append((match[1], value))
        elif value and name.startswith("metadata"):
            raise InvalidRequest("a filter on metadata is metadata[name]=value", name)
    if len(pairs) > MAX_METADATA_PAIRS:
        raise InvalidRequest(f"at most {MAX_METADATA_PAIRS} pairs", "metadata")
    return frozenset(pairs)
