"""`/v1/chat/completions` and `/v1/completions`: streamed, whole, and taken up again."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from streamwell.core.errors import RunNotFound
from streamwell.core.types import RunKind, RunRequest
from streamwell.server.answers import Lines, Resume, ResumeDep, collect, follow, idempotency_key
from streamwell.server.convert.openai import (
    ChunkEncoder,
    chat_run,
    completion_dict,
    completion_run,
)
from streamwell.server.convert.unsupported import (
    refuse_unsupported,
    refuse_unsupported_in_chat,
)
from streamwell.server.deps import Services, ServicesDep, TenantDep, routers
from streamwell.server.errors import JSONBytes
from streamwell.server.schemas.fields import GenerationRequest
from streamwell.server.schemas.openai import ChatRequest, CompletionRequest
from streamwell.server.sse import EventStream, data_lines
from streamwell.service.reader import Reader

router, reader_router = routers("generation")


@router.post("/chat/completions", response_model=None)
async def chat_completions(
    body: ChatRequest, request: Request, services: ServicesDep, tenant: TenantDep
) -> Response:
    """Answer a conversation."""
    services.unknown_fields.note(refuse_unsupported_in_chat(body.extra_fields))
    body = services.chat_dialect.complete(body)
    run = chat_run(body, tenant, idempotency_key(request))
    return await _answer(run, body, request, services)


@router.post("/completions", response_model=None)
async def completions(
    body: CompletionRequest, request: Request, services: ServicesDep, tenant: TenantDep
) -> Response:
    """Continue one or more texts."""
    services.unknown_fields.note(refuse_unsupported(body.extra_fields))
    run = completion_run(body, tenant, idempotency_key(request))
    return await _answer(run, body, request, services)


@reader_router.get("/chat/completions/{run_id}", response_model=None)
async def chat_completion(run_id: str, resume: ResumeDep) -> Response:
    """A chat completion again: its stream from a place on, or all of it once it has ended."""
    return await _again(run_id, RunKind.CHAT, resume)


@reader_router.get("/completions/{run_id}", response_model=None)
async def completion(run_id: str, resume: ResumeDep) -> Response:
    """A completion again: its stream from a place on, or all of it once it has ended."""
    return await _again(run_id, RunKind.COMPLETION, resume)


async def _answer(
    run: RunRequest, body: GenerationRequest, request: Request, services: Services
) -> Response:
    is_in_conversation = bool(run.terms.conversation_id)
    start = services.conversations.answer if is_in_conversation else services.runs.start
    reader = await start(run)
    if body.stream:
        return EventStream(reader, _lines(services)(reader), ping_s=services.ping_s)
    return await _whole(reader, request, services)


async def _again(run_id: str, kind: RunKind, resume: Resume) -> Response:
    services, runs = resume.services, resume.services.runs
    spec = await runs.find(run_id, resume.tenant)
    if spec.kind is not kind:
        raise RunNotFound
    if resume.wants_stream:
        return await follow(resume, run_id, resume.cursor(run_id), _lines(services))
    reader = await runs.attach(run_id, resume.tenant)
    return await _whole(reader, resume.request, services, knows_id=True)


async def _whole(
    reader: Reader, request: Request, services: Services, *, knows_id: bool = False
) -> Response:
    events = await collect(reader, request, knows_id=knows_id)
    if events is None:
        return Response(status_code=499)  # nobody reads it
    answer = completion_dict(reader.spec, events)
    is_chat = reader.spec.kind is RunKind.CHAT
    return JSONBytes(services.chat_dialect.completion(answer) if is_chat else answer)


def _lines(services: Services) -> Lines:
    return lambda reader: data_lines(ChunkEncoder(reader.spec, services.chat_dialect).payloads)
