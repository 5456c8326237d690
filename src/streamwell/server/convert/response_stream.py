"""A run's events to the stream of the Responses API, and its sequence numbers back to places.

The frames of a run with one choice, by kind of event:

    START (seq 0)   created, in_progress, output_item.added, content_part.added
    DELTA           output_text.delta
    FINISH          output_text.done, content_part.done, output_item.done
    END             completed, incomplete, failed or cancelled

Only the first event and the last but one make several frames, so an event's `seq` alone tells the
`sequence_number` of its first frame: a stream that is taken up again goes on with the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from streamwell.core.errors import InvalidRequest
from streamwell.core.ids import message_id
from streamwell.core.types import EventKind, RunEvent, RunSpec
from streamwell.server.convert.messages import Standing, text_part
from streamwell.server.convert.responses import answer_item, response_dict
from streamwell.server.error_body import run_error

#: Of each kind of event: how many frames it makes, and its first number less its seq.
_NUM_FRAMES = {EventKind.START: 4, EventKind.DELTA: 1, EventKind.FINISH: 3, EventKind.END: 1}
_AHEAD = {EventKind.START: 0, EventKind.DELTA: 3, EventKind.FINISH: 3, EventKind.END: 5}


def first_number(event: RunEvent) -> int:
    """The sequence number of an event's first frame."""
    return event.seq + _AHEAD[event.kind]


def place_after(number: int, events: Iterable[RunEvent]) -> tuple[int, int]:
    """The place after the frame of this number: after which event, and how many frames more.

    Raises:
        InvalidRequest: the events make no such frame.
    """
    if number == -1:
        return -1, 0
    for event in events:
        num_frames, num_seen = _NUM_FRAMES[event.kind], number - first_number(event) + 1
        if num_seen == num_frames:
            return event.seq, 0
        if 0 < num_seen < num_frames:
            return event.seq - 1, num_seen
    raise InvalidRequest(f"the response has no event {number} yet", "starting_after")


class ResponseEncoder:
    """Events of one run to the lines of its frames."""

    def __init__(self, spec: RunSpec, before: Iterable[RunEvent] = ()) -> None:
        """`before` are the events that the client has: the last frames need all of the text."""
        self._spec = spec
        self._standing = Standing()
        self._last_number = -1
        for event in before:
            self._take(event)
        self._item_at = {"item_id": message_id(spec.run_id), "output_index": 0, "content_index": 0}
        self._part_at = b'"item_id":"%b","output_index":0,"content_index":0' % (
            message_id(spec.run_id).encode()
        )

    def lines(self, event: RunEvent) -> list[bytes]:
        """The frames of one event."""
        if event.seq < 0:
            return [self._broken(event)]
        if event.kind is EventKind.DELTA:
            self._take(event)
            return [self._delta(event)]
        frames = self._start() if event.kind is EventKind.START else []
        self._take(event)
        if event.kind is EventKind.FINISH:
            frames = self._finish()
        elif event.kind is EventKind.END:
            status = self._standing.status
            # OpenAI has no event for it; its clients take the response out of this one
            name = "incomplete" if status == "cancelled" else status
            frames = [(f"response.{name}", {"response": self._response()})]
        number = first_number(event)
        return [_frame(name, number + part, body) for part, (name, body) in enumerate(frames)]

    def _take(self, event: RunEvent) -> None:
        self._standing.add(event)
        self._last_number = first_number(event) + _NUM_FRAMES[event.kind] - 1

    def _response(self) -> dict[str, Any]:
        return response_dict(self._spec, self._standing)

    def _start(self) -> list[tuple[str, dict[str, Any]]]:
        response = self._response()
        item = answer_item(self._spec, self._standing) | {"content": []}
        return [
            ("response.created", {"response": response}),
            ("response.in_progress", {"response": response}),
            ("response.output_item.added", {"output_index": 0, "item": item}),
            ("response.content_part.added", {**self._item_at, "part": text_part("")}),
        ]

    def _delta(self, event: RunEvent) -> bytes:
        # put together by hand: there is one for every token of every stream
        return (
            b"event: response.output_text.delta\n"
            b'data: {"type":"response.output_text.delta","sequence_number":%d,%b,'
            b'"delta":%b,"logprobs":[]}'
            % (self._last_number, self._part_at, orjson.dumps(event.text))
        )

    def _finish(self) -> list[tuple[str, dict[str, Any]]]:
        text, item = self._standing.text, answer_item(self._spec, self._standing)
        return [
            ("response.output_text.done", {**self._item_at, "text": text, "logprobs": []}),
            ("response.content_part.done", {**self._item_at, "part": text_part(text)}),
            ("response.output_item.done", {"output_index": 0, "item": item}),
        ]

    def _broken(self, event: RunEvent) -> bytes:
        """An end of the stream that is none of the run: whoever goes on after it misses nothing."""
        about = {"code": event.error_code, "message": event.error or "", "param": None}
        body = about | run_error(event)
        return _frame("error", self._last_number, body)


def _frame(name: str, number: int, body: dict[str, Any]) -> bytes:
    data = orjson.dumps({"type": name, "sequence_number": number, **body})
    return b"event: %b\ndata: %b" % (name.encode(), data)
