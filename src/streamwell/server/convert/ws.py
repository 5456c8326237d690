"""Text frames of `/v1/ws` to messages, and a run's events to text frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from streamwell.core.errors import InvalidRequest
from streamwell.core.types import EventKind, FinishReason, RunEvent, RunSpec
from streamwell.server.convert.openai import usage_dict
from streamwell.server.error_body import run_error
from streamwell.server.schemas.ws import (
    AuthMessage,
    CancelMessage,
    ClientMessage,
    PromptMessage,
    ResumeMessage,
)

_MODELS: dict[Any, type[ClientMessage]] = {
    "auth": AuthMessage,
    "cancel": CancelMessage,
    "prompt": PromptMessage,
    "resume": ResumeMessage,
}


def fields_of(text: str) -> dict[str, Any]:
    """A frame as a JSON object; raises `InvalidRequest` if it is none."""
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the message is not valid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidRequest("the message must be a JSON object")
    return fields


def message_of(fields: dict[str, Any]) -> ClientMessage:
    """The message of a frame.

    Raises:
        InvalidRequest: there is no such type of message.
        ValidationError: a field is wrong.
    """
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in _MODELS:
        raise InvalidRequest(f"type must be one of {', '.join(_MODELS)}", "type")
    return _MODELS[kind].model_validate(fields)


def error_frame(body: dict[str, Any], **also: object) -> bytes:
    """An OpenAI error body as a frame, with what is known beside it."""
    known = {name: value for name, value in also.items() if value is not None}
    return orjson.dumps({"type": "error", **known, **body})


def suspended_frame(run_id: str, retry_after_s: float) -> bytes:
    """The run goes on when a server is up again."""
    return orjson.dumps({"type": "suspended", "run": run_id, "retry_after_s": retry_after_s})


class FrameEncoder:
    """Events of one run to frames."""

    def __init__(
        self, spec: RunSpec, seen: Sequence[RunEvent] = (), message_id: str | None = None
    ) -> None:
        """`seen` are the events that the client has already, `message_id` is what it is told."""
        self._run_id = spec.run_id
        self._message_id = message_id
        self._reasons: list[FinishReason | None] = [None] * spec.total_choices
        for event in seen:
            self._note(event)

    def frame(self, event: RunEvent) -> bytes | None:
        """The frame of an event, if it has one."""
        self._note(event)
        match event.kind:
            case EventKind.START if event.index == 0:
                body = {"id": self._message_id} if self._message_id is not None else {}
                return self._dumps("started", event, body)
            case EventKind.DELTA:
                return self._dumps("delta", event, {"index": event.index, "text": event.text})
            case EventKind.END:
                return self._end(event)
        return None

    def _note(self, event: RunEvent) -> None:
        if event.kind is EventKind.FINISH:
            self._reasons[event.index] = event.finish_reason

    def _end(self, event: RunEvent) -> bytes:
        if event.error is not None:
            return self._dumps("error", event, run_error(event))
        usage = usage_dict(event.usage) if event.usage else None
        if len(self._reasons) > 1:
            return self._dumps("done", event, {"finish_reasons": self._reasons, "usage": usage})
        return self._dumps("done", event, {"finish_reason": self._reasons[0], "usage": usage})

    def _dumps(self, kind: str, event: RunEvent, body: dict[str, Any]) -> bytes:
        return orjson.dumps({"type": kind, "run": self._run_id, "seq": event.seq, **body})
