"""Events to bytes: a server-sent event stream that follows a run's log.

Written by hand because nothing at hand has all of: a status code while the run is not accepted
yet, an `id` on every frame, comments while nothing happens, and a run that learns at once that
its reader left (the WHATWG HTML standard, section 9.2, has the format).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import Send

from streamwell.core.errors import StoreFailed, Unavailable
from streamwell.core.types import EventKind, RunEvent
from streamwell.server.cursor import frame_id
from streamwell.server.run_response import HEADERS, RunResponse, body_part
from streamwell.service.reader import Reader

#: A comment ends with its line. At an empty line OpenAI's client, which forgets no id, would see an
#: event without data. So `retry` has no empty line of its own, either.
_PING = b": ping\n"

#: One event to the JSON payloads of its frames.
Payloads = Callable[[RunEvent], list[bytes]]


def data_lines(payloads: Payloads) -> Payloads:
    """One event to the lines of its frames, for payloads that need no event name."""
    return lambda event: [b"data: " + payload for payload in payloads(event)]


def retry_later(error: Unavailable) -> Response:
    """An empty stream that an `EventSource` takes up again by itself; any error would end it."""
    body = b"retry: %d\n\n" % (1000 * math.ceil(error.retry_after_s))
    return Response(body, media_type="text/event-stream", headers=HEADERS)


class EventStream(RunResponse):
    """A run's events as frames until its end, or until the client leaves."""

    media_type = "text/event-stream"

    def __init__(
        self,
        reader: Reader,
        lines: Payloads,
        *,
        ping_s: float,
        skip: int = 0,
        for_eventsource: bool = False,
    ) -> None:
        """`lines` are the fields of an event's frames, but for the id.

        Args:
            reader: whom the stream belongs to; it is closed with it.
            lines: one event to the lines of its frames.
            ping_s: seconds of silence before a comment.
            skip: how many frames of the first event the client has already.
            for_eventsource: a server that shuts down ends the stream so that it is taken up again
                by itself, instead of telling of it as an error.
        """
        super().__init__(reader)
        self._lines = lines
        self._ping_s = ping_s
        self._skip = skip
        self._for_eventsource = for_eventsource
        #: When something was sent last, in the event loop's time.
        self._sent_s = 0.0

    async def send_run(self, send: Send) -> None:
        loop = asyncio.get_running_loop()
        await self.begin(send)
        self._sent_s = loop.time()
        pinging = asyncio.create_task(self._ping(send))
        try:
            async for events in self.reader.events():
                if body := b"".join(map(self._frames, events)):
                    await send(body_part(body, more=True))
                    self._sent_s = loop.time()
        except StoreFailed:  # a database's own words are for the log alone
            await send(body_part(self._broken(str(StoreFailed()), "store_failed"), more=True))
        except Unavailable as failure:  # the server ends, or the run passes to another one
            body = b"retry: %d\n" % (1000 * failure.retry_after_s)
            if self._for_eventsource:
                body += b"\n"
            else:
                body += self._broken(f"{failure} The run goes on.", failure.code)
            await send(body_part(body, more=True))
        finally:
            pinging.cancel()
        await send(body_part(b"", more=False))

    async def _ping(self, send: Send) -> None:
        """Send a comment whenever nothing has been sent for `ping_s`."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._sent_s + self._ping_s - loop.time())
            if loop.time() >= self._sent_s + self._ping_s:
                await send(body_part(_PING, more=True))
                self._sent_s = loop.time()

    def _broken(self, error: str, code: str) -> bytes:
        """An end that is not in the log, so it has no id."""
        run_id = self.reader.spec.run_id
        end = RunEvent(run_id=run_id, seq=-1, kind=EventKind.END, error=error, error_code=code)
        return b"".join(b"%b\n\n" % lines for lines in self._lines(end))

    def _frames(self, event: RunEvent) -> bytes:
        """All frames of one event; they leave in one write."""
        parts = self._lines(event)
        skip, self._skip = self._skip, 0
        if skip >= len(parts):  # an id that we never gave
            skip = 0
        return b"".join(
            b"id: %b\n%b\n\n" % (frame_id(event.run_id, event.seq, k, len(parts)).encode(), lines)
            for k, lines in enumerate(parts)
            if k >= skip
        )
