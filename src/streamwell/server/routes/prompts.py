"""`/query-stream/`, `/generate-stream`, `/generate` and `POST /`: a prompt in, its answer streamed.

The prompt is put to the model in the manner of a preset.
"""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from streamwell.core.errors import InvalidRequest
from streamwell.server.answers import Resume, ResumeDep, begin, follow, idempotency_key
from streamwell.server.convert.prompts import DoneEncoder, prompt_run
from streamwell.server.convert.unsupported import refuse_unsupported
from streamwell.server.cursor import run_of
from streamwell.server.deps import Services, ServicesDep, TenantDep, routers
from streamwell.server.queries import from_query, refuse_other_sites
from streamwell.server.schemas.prompts import PromptRequest, QueryRequest
from streamwell.server.sse import EventStream, Payloads
from streamwell.server.text_stream import TextStream
from streamwell.service.reader import Reader

router, reader_router = routers("prompts")

#: What the service calls the prompt in its errors.
_PROMPT_PARAMS = frozenset({"prompt", "messages"})


@router.post("/query-stream/", response_model=None)
async def post_query(
    body: QueryRequest, request: Request, services: ServicesDep, tenant: TenantDep
) -> Response:
    """Answer a query."""
    reader = await _start(body, services, tenant, idempotency_key(request))
    return EventStream(reader, _lines(reader), ping_s=services.ping_s)


@router.post("/generate-stream", response_model=None)
async def post_generate_stream(
    body: PromptRequest, request: Request, services: ServicesDep, tenant: TenantDep
) -> Response:
    """Answer a prompt."""
    reader = await _start(body, services, tenant, idempotency_key(request))
    return EventStream(reader, _lines(reader), ping_s=services.ping_s)


@reader_router.get("/query-stream/", response_model=None)
async def get_query(resume: ResumeDep) -> Response:
    """Answer a query; a browser's `EventSource` that reconnects goes on with the answer.

    The query has the fields of `POST /query-stream/`.
    """
    return await _stream(QueryRequest, resume)


@reader_router.get("/generate-stream", response_model=None)
async def get_generate_stream(resume: ResumeDep) -> Response:
    """Answer a prompt; a browser's `EventSource` that reconnects goes on with the answer.

    The query has the fields of `POST /generate-stream`.
    """
    return await _stream(PromptRequest, resume)


@reader_router.get("/generate-stream/{run_id}", response_model=None)
async def follow_run(run_id: str, resume: ResumeDep) -> Response:
    """The stream of any run, from a place on."""
    return await follow(resume, run_id, resume.cursor(run_id), _lines)


@router.post("/generate", response_model=None)
async def generate(
    body: PromptRequest, request: Request, services: ServicesDep, tenant: TenantDep
) -> Response:
    """Answer a prompt in plain text."""
    return TextStream(await _start(body, services, tenant, idempotency_key(request)))


@router.post("/", response_model=None)
async def textbot(request: Request, services: ServicesDep, tenant: TenantDep) -> Response:
    """Answer the prompt of the query in plain text; its other fields are those of `/generate`."""
    refuse_other_sites(request, services)  # without a body, a form of any page could be this
    if await request.body():
        raise InvalidRequest("POST / takes its fields in the query, and no body")
    body = from_query(PromptRequest, request)
    return TextStream(await _start(body, services, tenant, idempotency_key(request)))


async def _stream(model: type[PromptRequest] | type[QueryRequest], resume: Resume) -> Response:
    if resume.last_event_id:
        run_id = run_of(resume.last_event_id)
        return await follow(resume, run_id, resume.cursor(run_id), _lines)
    refuse_other_sites(resume.request, resume.services)
    body = from_query(model, resume.request)
    return await begin(resume, _start(body, resume.services, resume.tenant), _lines)


async def _start(
    body: PromptRequest | QueryRequest, services: Services, tenant: str, key: str = ""
) -> Reader:
    """Start a run that is in the log when this returns: its id is sent before any event.

    Raises:
        InvalidRequest: the prompt or the preset is wrong.
        Unavailable, StoreFailed: not now.
    """
    services.unknown_fields.note(refuse_unsupported(body.extra_fields))
    preset = services.presets.find(body.preset)
    try:
        reader = await services.runs.start(prompt_run(body, body.prompt, preset, tenant, key))
    except InvalidRequest as error:
        if error.param in _PROMPT_PARAMS:
            error.param = body.PROMPT_FIELD
        raise
    try:
        await reader.wait_for_start()
    except BaseException:
        reader.close(resumable=False)
        raise
    return reader


def _lines(reader: Reader) -> Payloads:
    return DoneEncoder(reader.spec).lines
