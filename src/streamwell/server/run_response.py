"""A response that follows a run: it belongs to a reader, and learns at once who has left."""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from streamwell.core.errors import EngineError, ShuttingDown, StreamwellError
from streamwell.core.types import RunEvent
from streamwell.service.reader import Reader

#: Tell every proxy not to keep or hold back a stream.
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
#: The header that names the run of a stream.
RUN_HEADER = "x-run-id"


class RunResponse(Response):
    """Sends what its reader reads, until the end of the run or until the client leaves.

    How it looks is up to `send_run` of a subclass, which has a `media_type`.
    """

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self.reader = reader

    @property
    def is_resumable(self) -> bool:
        """The client can come back, since it knows the run."""
        return True

    async def send_run(self, send: Send) -> None:
        raise NotImplementedError

    async def begin(self, send: Send) -> None:
        """Send the head of the answer."""
        headers = {
            "content-type": f"{self.media_type}; charset=utf-8",
            **HEADERS,
            RUN_HEADER: self.reader.spec.run_id,
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self.send_run(send))
        leaving = asyncio.create_task(disconnected(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.reader.close(resumable=self.is_resumable)
            sending.cancel()
            leaving.cancel()
            results = await asyncio.gather(sending, leaving, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result


def body_part(body: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def disconnected(receive: Receive) -> None:
    """Return when the client has gone; the request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


def failure(event: RunEvent) -> StreamwellError | None:
    """Why a run failed, if this event says that it did."""
    if event.error is None:
        return None
    return ShuttingDown() if event.error_code == ShuttingDown.code else EngineError(event.error)
