"""Events to bytes: a server-sent event stream that follows a run's log.

Written by hand because nothing at hand has all of: a status code while the run is not accepted
yet, an `id` on every frame, comments while nothing happens, and a run that learns at once that
its reader left (the WHATWG HTML standard, section 9.2, has the format).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from streamwell.core.errors import StoreFailed
from streamwell.core.types import EventKind, RunEvent
from streamwell.service.runs import Reader

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_PING = b": ping\n\n"

#: One event to the JSON payloads of its frames.
Payloads = Callable[[RunEvent], list[bytes]]


def frame(event: RunEvent, payload: bytes) -> bytes:
    """One complete frame; it leaves in one write."""
    return b"id: %b:%d\ndata: %b\n\n" % (event.run_id.encode(), event.seq, payload)


class EventStream(Response):
    """A response that sends a run's events until its end, or until the client leaves."""

    def __init__(self, reader: Reader, payloads: Payloads, *, ping_s: float) -> None:
        super().__init__(media_type="text/event-stream")
        self._reader = reader
        self._payloads = payloads
        self._ping_s = ping_s
        #: When something was sent last, in the event loop's time.
        self._sent_s = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(disconnected(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._reader.close()
            sending.cancel()
            leaving.cancel()
            results = await asyncio.gather(sending, leaving, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _send(self, send: Send) -> None:
        loop = asyncio.get_running_loop()
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        self._sent_s = loop.time()
        pinging = asyncio.create_task(self._ping(send))
        try:
            async for events in self._reader.events():
                if body := self._encode(events):
                    await send(_body(body, more=True))
                    self._sent_s = loop.time()
        except StoreFailed as failure:
            await send(_body(self._broken(failure), more=True))
        finally:
            pinging.cancel()
        await send(_body(b"", more=False))

    async def _ping(self, send: Send) -> None:
        """Send a comment whenever nothing has been sent for `ping_s`."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._sent_s + self._ping_s - loop.time())
            if loop.time() >= self._sent_s + self._ping_s:
                await send(_body(_PING, more=True))
                self._sent_s = loop.time()

    def _broken(self, failure: StoreFailed) -> bytes:
        """An end that is not in the log, so it has no id."""
        run_id = self._reader.spec.run_id
        end = RunEvent(
            run_id=run_id,
            seq=-1,
            kind=EventKind.END,
            error=str(failure),
            error_code="store_failed",
        )
        return b"".join(b"data: %b\n\n" % payload for payload in self._payloads(end))

    def _encode(self, events: list[RunEvent]) -> bytes:
        return b"".join(
            frame(event, payload) for event in events for payload in self._payloads(event)
        )


def _body(body: bytes, *, more: bool) -> dict[str, object]:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def disconnected(receive: Receive) -> None:
    """Return when the client has gone; the request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
