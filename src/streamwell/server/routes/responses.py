"""`/v1/responses`: streamed, whole, in the background, and taken up again."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, HTTPException, Request
from starlette.responses import Response

from streamwell.core.errors import RunNotFound
from streamwell.core.types import RunEvent, RunKind, RunSpec
from streamwell.server.answers import Resume, ResumeDep, collect, follow, idempotency_key
from streamwell.server.convert.messages import Standing, input_items, page_of
from streamwell.server.convert.response_stream import ResponseEncoder, place_after
from streamwell.server.convert.responses import response_dict, response_run
from streamwell.server.convert.unsupported import refuse_unsupported_in_response
from streamwell.server.cursor import Cursor, parse_starting_after
from streamwell.server.deps import Services, ServicesDep, TenantDep, routers
from streamwell.server.errors import JSONBytes
from streamwell.server.paging import NewestFirstDep, refuse_include
from streamwell.server.schemas.responses import ResponseRequest
from streamwell.server.sse import EventStream
from streamwell.service.reader import Reader

router, reader_router = routers("responses")


@router.post("/responses", response_model=None)
async def create_response(
    body: ResponseRequest, request: Request, services: ServicesDep, tenant: TenantDep
) -> Response:
    """Answer a text or messages, on top of what was said before."""
    services.unknown_fields.note(refuse_unsupported_in_response(body.extra_fields))
    run = response_run(body, tenant, idempotency_key(request))
    reader = await services.conversations.answer(run)
    if body.stream:
        encoder = ResponseEncoder(reader.spec)
        return EventStream(reader, encoder.lines, ping_s=services.ping_s)
    if body.background:
        return JSONBytes(await _begun(reader, services))
    events = await collect(reader, request)
    if events is None:
        return Response(status_code=499)  # nobody reads it
    return JSONBytes(response_dict(reader.spec, Standing(events)))


@router.post("/responses/compact", response_model=None, include_in_schema=False)
@router.post("/responses/input_tokens", response_model=None, include_in_schema=False)
async def not_served(request: Request, _tenant: TenantDep) -> Response:
    """What OpenAI has beside responses; without this they would be taken for ids of responses."""
    raise HTTPException(404, f"{request.url.path} is not served here")


@reader_router.get(
    "/responses/{response_id}", response_model=None, dependencies=[Depends(refuse_include)]
)
async def get_response(response_id: str, resume: ResumeDep) -> Response:
    """A response as it stands, or its stream from a place on."""
    services = resume.services
    spec = await _find(response_id, resume.tenant, services)
    if not resume.wants_stream:
        return JSONBytes(await _response_dict(spec, services))
    events = await services.runs.log.events(response_id)
    cursor = _cursor(resume, response_id, events)
    encoder = ResponseEncoder(spec, (event for event in events if event.seq <= cursor.after_seq))
    return await follow(resume, response_id, cursor, lambda _reader: encoder.lines)


@router.post("/responses/{response_id}/cancel", response_model=None)
async def cancel_response(response_id: str, services: ServicesDep, tenant: TenantDep) -> Response:
    """End a response, for all of its readers; harmless if it has ended."""
    spec = await _find(response_id, tenant, services)
    await services.runs.cancel(response_id, tenant)
    return JSONBytes(await _response_dict(spec, services))


@router.delete("/responses/{response_id}", response_model=None)
async def delete_response(response_id: str, services: ServicesDep, tenant: TenantDep) -> Response:
    """Delete a response; one that has not ended is cancelled first."""
    await _find(response_id, tenant, services)
    await services.runs.delete(response_id, tenant)
    return JSONBytes({"id": response_id, "object": "response", "deleted": True})


@router.get(
    "/responses/{response_id}/input_items",
    response_model=None,
    dependencies=[Depends(refuse_include)],
)
async def get_input_items(
    response_id: str,
    services: ServicesDep,
    tenant: TenantDep,
    query: NewestFirstDep,
) -> Response:
    """The messages that a response answers, those before it included."""
    spec = await _find(response_id, tenant, services)
    items = input_items(response_id, spec.terms.messages)
    page = page_of(items, limit=query.limit, after=query.after, newest_first=query.newest_first)
    return JSONBytes(page)


async def _find(response_id: str, tenant: str, services: Services) -> RunSpec:
    spec = await services.runs.find(response_id, tenant)
    if spec.kind is not RunKind.RESPONSE:
        raise RunNotFound
    return spec


async def _begun(reader: Reader, services: Services) -> dict[str, Any]:
    """A response whose beginning is in the store, so that it can be asked for again."""
    try:
        await reader.wait_for_start()
    finally:
        reader.close()
    return await _response_dict(reader.spec, services)


async def _response_dict(spec: RunSpec, services: Services) -> dict[str, Any]:
    is_paused = services.runs.is_paused(spec.run_id)
    standing = Standing(await services.runs.log.events(spec.run_id))
    return response_dict(spec, standing, is_paused=is_paused)


def _cursor(resume: Resume, response_id: str, events: list[RunEvent]) -> Cursor:
    """The place; `starting_after` is the number of a frame here, and not of an event."""
    if resume.last_event_id or resume.starting_after is None:
        return resume.cursor(response_id)
    number = parse_starting_after(resume.starting_after).after_seq
    return Cursor(*place_after(number, events))
