"""`/v1/runs`, `/v1/stream` and `/v1/tickets`: runs as Streamwell sees them."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import Response

from streamwell.core.errors import InvalidRequest
from streamwell.core.types import RunSpec
from streamwell.server.answers import Resume, ResumeDep, begin, follow, idempotency_key
from streamwell.server.convert.messages import page_of
from streamwell.server.convert.text import TextEncoder, run_dict, text_run
from streamwell.server.convert.unsupported import refuse_unsupported
from streamwell.server.cursor import run_of
from streamwell.server.deps import Services, ServicesDep, TenantDep, routers
from streamwell.server.errors import JSONBytes
from streamwell.server.paging import NewestFirstDep
from streamwell.server.queries import from_query, refuse_other_sites
from streamwell.server.schemas.runs import StartRunRequest, TicketRequest

router, reader_router = routers("runs")


@router.post("/runs", status_code=201, response_model=None)
async def start_run(
    body: StartRunRequest, request: Request, services: ServicesDep, tenant: TenantDep
) -> Response:
    """Start a run and say where it can be followed; unless in the background, it waits for that."""
    services.unknown_fields.note(refuse_unsupported(body.extra_fields))
    if body.stream:
        raise InvalidRequest("a run is followed where its events are", "stream")
    reader = await services.runs.start(text_run(body, tenant, idempotency_key(request)))
    run_id = reader.spec.run_id
    try:
        await reader.wait_for_start()  # what has a place can be asked for there
    finally:
        reader.close()
    return JSONBytes(
        await _run_dict(run_id, services, tenant), 201, {"Location": f"/v1/runs/{run_id}"}
    )


@router.get("/runs", response_model=None)
async def list_runs(services: ServicesDep, tenant: TenantDep, query: NewestFirstDep) -> Response:
    """The caller's runs that this server has in hand: in progress, or paused."""
    runs = services.runs
    specs = {spec.run_id: spec for spec in runs.live(tenant)}
    page = page_of(
        [{"id": run_id} for run_id in specs],
        limit=query.limit,
        after=query.after,
        newest_first=query.newest_first,
    )
    page["data"] = [await _as_it_stands(specs[entry["id"]], services) for entry in page["data"]]
    return JSONBytes(page)


@router.get("/runs/{run_id}", response_model=None)
async def get_run(run_id: str, services: ServicesDep, tenant: TenantDep) -> Response:
    """Where a run stands, and its text so far."""
    return JSONBytes(await _run_dict(run_id, services, tenant))


@router.post("/runs/{run_id}/cancel", response_model=None)
async def cancel_run(run_id: str, services: ServicesDep, tenant: TenantDep) -> Response:
    """End a run, for all of its readers; harmless if it has ended."""
    await services.runs.cancel(run_id, tenant)
    return JSONBytes(await _run_dict(run_id, services, tenant))


@router.delete("/runs/{run_id}", response_model=None)
async def delete_run(run_id: str, services: ServicesDep, tenant: TenantDep) -> Response:
    """Delete a run and its text; one that has not ended is cancelled first."""
    await services.runs.delete(run_id, tenant)
    return JSONBytes({"id": run_id, "object": "run.deleted", "deleted": True})


@reader_router.get("/runs/{run_id}/events", response_model=None)
async def run_events(run_id: str, resume: ResumeDep) -> Response:
    """The stream of any run, from a place on."""
    return await _go_on(run_id, resume)


@reader_router.get("/stream", response_model=None)
async def stream(resume: ResumeDep) -> Response:
    """Start a run and stream it; a browser's `EventSource` that reconnects goes on with it.

    The query has the fields of `POST /v1/runs`.
    """
    if resume.last_event_id:
        return await _go_on(run_of(resume.last_event_id), resume)
    services = resume.services
    refuse_other_sites(resume.request, services)
    body = from_query(StartRunRequest, resume.request)
    services.unknown_fields.note(refuse_unsupported(body.extra_fields))
    starting = services.runs.start(text_run(body, resume.tenant))
    return await begin(resume, starting, lambda reader: TextEncoder(reader.spec).lines)


@router.post("/tickets", status_code=201, response_model=None)
async def ticket(body: TicketRequest, services: ServicesDep, tenant: TenantDep) -> Response:
    """A short-lived stand-in for the caller's key: `?ticket=` opens streams, and nothing else."""
    value, expires_s = services.keys.ticket(tenant, body.lifetime_s)
    return JSONBytes({"object": "ticket", "ticket": value, "expires_at": expires_s}, 201)


async def _go_on(run_id: str, resume: Resume) -> Response:
    cursor, runs = resume.cursor(run_id), resume.services.runs
    spec = await runs.find(run_id, resume.tenant)
    events = await runs.log.events(run_id) if cursor.after_seq >= 0 else []
    encoder = TextEncoder(spec, (event for event in events if event.seq <= cursor.after_seq))
    return await follow(resume, run_id, cursor, lambda _reader: encoder.lines)


async def _run_dict(run_id: str, services: Services, tenant: str) -> dict[str, Any]:
    return await _as_it_stands(await services.runs.find(run_id, tenant), services)


async def _as_it_stands(spec: RunSpec, services: Services) -> dict[str, Any]:
    events = await services.runs.log.events(spec.run_id)
    return run_dict(spec, events, is_paused=services.runs.is_paused(spec.run_id))
