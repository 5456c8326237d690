"""How a route answers from a reader of a run: as a stream, whole, or not at all.

Every route that starts or follows a run ends here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Query, Request
from starlette.responses import Response

from streamwell.core.errors import InvalidRequest, Unavailable
from streamwell.core.types import RunEvent
from streamwell.server.cursor import Cursor, parse_event_id, parse_starting_after
from streamwell.server.deps import ReaderTenantDep, Services, ServicesDep
from streamwell.server.run_response import disconnected, failure
from streamwell.server.schemas.fields import IDEMPOTENCY_KEY
from streamwell.server.sse import EventStream, Payloads, retry_later
from streamwell.service.reader import Reader

#: The lines of a reader's frames, in the format of its route.
Lines = Callable[[Reader], Payloads]

_IDEMPOTENCY_KEY = re.compile(IDEMPOTENCY_KEY)


def idempotency_key(request: Request) -> str:
    """The caller's name for this request; empty if it has none.

    Raises:
        InvalidRequest: it is too long, or not printable ASCII.
    """
    value = request.headers.get("idempotency-key")
    if value is not None and _IDEMPOTENCY_KEY.fullmatch(value) is None:
        raise InvalidRequest(
            "must be 1 to 255 printable ASCII characters, no spaces", "Idempotency-Key"
        )
    return value or ""


@dataclass(frozen=True, slots=True)
class Resume:
    """How a request wants to go on with a run, and whose it is."""

    request: Request
    services: Services
    tenant: str
    wants_stream: bool
    last_event_id: str | None
    starting_after: str | None

    def cursor(self, run_id: str) -> Cursor:
        """The place; the header counts more, since it is younger than the URL.

        Raises:
            InvalidRequest: it is no place in this run.
        """
        if self.last_event_id:
            return parse_event_id(self.last_event_id, run_id)
        return (
            Cursor() if self.starting_after is None else parse_starting_after(self.starting_after)
        )


def resume(
    request: Request,
    services: ServicesDep,
    tenant: ReaderTenantDep,
    stream: Annotated[str, Query(pattern="^(true|false)$")] = "false",
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
    starting_after: Annotated[str | None, Query()] = None,
) -> Resume:
    """`?stream=`, `?starting_after=`, and the header that an `EventSource` sends by itself."""
    wants_stream = stream == "true" or bool(last_event_id)
    return Resume(request, services, tenant, wants_stream, last_event_id, starting_after)


ResumeDep = Annotated[Resume, Depends(resume)]


def wants_events(request: Request) -> bool:
    """The client is an EventSource, or one like it: an error status would end it for good."""
    return "text/event-stream" in request.headers.get("accept", "")


async def begin(resume: Resume, starting: Awaitable[Reader], lines: Lines) -> Response:
    """The stream of a run that a GET starts; what an `EventSource` is to try again, it does."""
    try:
        reader = await starting
    except Unavailable as error:
        if wants_events(resume.request):
            return retry_later(error)
        raise
    return EventStream(
        reader,
        lines(reader),
        ping_s=resume.services.ping_s,
        for_eventsource=wants_events(resume.request),
    )


async def follow(resume: Resume, run_id: str, cursor: Cursor, lines: Lines) -> Response:
    """A stream of a run from a place on; 204 if the client has seen its end.

    Raises:
        RunNotFound, InvalidRequest: there is no such run, or no such place in it.
        Unavailable: not now, unless the client takes it up again by itself.
    """
    request, services = resume.request, resume.services
    try:
        reader = await services.runs.attach(run_id, resume.tenant, cursor.after_seq)
    except InvalidRequest as error:  # the place is the header's, or the query's
        raise InvalidRequest(str(error), cursor.source) from None
    except Unavailable as error:
        if wants_events(request):
            return retry_later(error)
        raise
    if not reader.is_live and await services.runs.log.is_end(run_id, cursor.after_seq):
        reader.close()
        return Response(status_code=204)
    return EventStream(
        reader,
        lines(reader),
        ping_s=services.ping_s,
        skip=cursor.skip,
        for_eventsource=wants_events(request),
    )


async def collect(
    reader: Reader, request: Request, *, knows_id: bool = False
) -> list[RunEvent] | None:
    """All events of a run; `None` as soon as the client has gone.

    A client that left can ask again if it has named its request, or knows the run's id; then the
    run waits for it, and else it is cancelled.

    Raises:
        EngineError: the run failed.
        ShuttingDown: the server ends before it.
    """

    async def read() -> list[RunEvent]:
        return [event async for events in reader.events() for event in events]

    reading = asyncio.create_task(read())
    leaving = asyncio.create_task(disconnected(request.receive))
    try:
        await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
        events = reading.result() if reading.done() else None
    finally:
        reading.cancel()
        leaving.cancel()
        await asyncio.gather(reading, leaving, return_exceptions=True)
        reader.close(resumable=knows_id or bool(reader.spec.terms.idempotency_key))
    if events and (error := failure(events[-1])) is not None:
        raise error
    return events
