"""`/v1/chat/completions` and `/v1/completions`, streamed and whole."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from streamwell.core.errors import EngineError
from streamwell.core.types import RunEvent, RunRequest
from streamwell.server.convert.openai import (
    ChunkEncoder,
    chat_run,
    completion_dict,
    completion_run,
)
from streamwell.server.convert.unsupported import refuse_unsupported
from streamwell.server.deps import ClosedRoute, Services, ServicesDep, TenantDep
from streamwell.server.errors import JSONBytes
from streamwell.server.schemas.fields import GenerationRequest
from streamwell.server.schemas.openai import ChatRequest, CompletionRequest
from streamwell.server.sse import EventStream, disconnected
from streamwell.service.runs import Reader

router = APIRouter(route_class=ClosedRoute, tags=["generation"])


@router.post("/chat/completions", response_model=None)
async def chat_completions(
    body: ChatRequest, request: Request, services: ServicesDep, tenant: TenantDep
) -> Response:
    """Answer a conversation."""
    services.unknown_fields.note(refuse_unsupported(body.model_extra))
    return await _answer(chat_run(body, tenant), body, request, services)


@router.post("/completions", response_model=None)
async def completions(
    body: CompletionRequest, request: Request, services: ServicesDep, tenant: TenantDep
) -> Response:
    """Continue one or more texts."""
    services.unknown_fields.note(refuse_unsupported(body.model_extra))
    return await _answer(completion_run(body, tenant), body, request, services)


async def _answer(
    run: RunRequest, body: GenerationRequest, request: Request, services: Services
) -> Response:
    reader = await services.runs.start(run)
    if body.stream:
        options = body.stream_options
        encoder = ChunkEncoder(reader.spec, include_usage=bool(options and options.include_usage))
        return EventStream(reader, encoder.payloads, ping_s=services.ping_s)
    try:
        events = await _collect(reader, request)
    finally:
        reader.close()
    if events is None:
        return Response(status_code=499)  # nobody reads it
    if (error := events[-1].error) is not None:
        raise EngineError(error)
    return JSONBytes(completion_dict(reader.spec, events))


async def _collect(reader: Reader, request: Request) -> list[RunEvent] | None:
    """All events of a run; `None` as soon as the client has gone."""

    async def read() -> list[RunEvent]:
        return [event async for events in reader.events() for event in events]

    reading = asyncio.create_task(read())
    leaving = asyncio.create_task(disconnected(request.receive))
    try:
        await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return reading.result() if reading.done() else None
    finally:
        reading.cancel()
        leaving.cancel()
        await asyncio.gather(reading, leaving, return_exceptions=True)
