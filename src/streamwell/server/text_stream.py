"""A run's text and nothing else: `text/plain`, as it comes."""

from __future__ import annotations

from contextlib import aclosing

import structlog
from starlette.types import Send

from streamwell.core.errors import StreamwellError
from streamwell.core.types import EventKind, RunEvent
from streamwell.server.run_response import RunResponse, body_part, failure

log = structlog.get_logger()


class TextStream(RunResponse):
    """The text of a run's first choice; no chunk ends within a character.

    Plain text has no place for an error. So the answer begins with the first text: what goes wrong
    before is an error of its own. What goes wrong later cuts the connection, and no client takes
    the text for whole.
    """

    media_type = "text/plain"

    _has_begun = False

    @property
    def is_resumable(self) -> bool:
        """Who has not seen the head can only come back with the name of its request."""
        return self._has_begun or bool(self.reader.spec.terms.idempotency_key)

    async def send_run(self, send: Send) -> None:
        try:
            async with aclosing(self.reader.events()) as batches:
                async for events in batches:
                    await self._send_text(events, send)
        except StreamwellError as error:
            if not self._has_begun:
                raise
            log.warning("a text is cut short", run=self.reader.spec.run_id, reason=str(error))
            return  # without a last chunk
        await self._begin_once(send)
        await send(body_part(b"", more=False))

    async def _send_text(self, events: list[RunEvent], send: Send) -> None:
        deltas = [event for event in events if event.kind is EventKind.DELTA and not event.index]
        if text := "".join(event.text for event in deltas):
            await self._begin_once(send)
            await send(body_part(text.encode(), more=True))
        if (error := failure(events[-1])) is not None:
            raise error

    async def _begin_once(self, send: Send) -> None:
        if not self._has_begun:
            self._has_begun = True
            await self.begin(send)
