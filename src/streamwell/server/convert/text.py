"""Streamwell's own format: `{"text": …}` events, a `done` event at the end, and run objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from streamwell.core.errors import InvalidRequest
from streamwell.core.types import (
    EventKind,
    FinishReason,
    RunEvent,
    RunKind,
    RunRequest,
    RunSpec,
    end_of,
)
from streamwell.server.convert.openai import (
    core_chat_message,
    options_of,
    run_terms,
    usage_dict,
)
from streamwell.server.error_body import run_error
from streamwell.server.schemas.runs import StartRunRequest


def text_run(body: StartRunRequest, tenant: str, idempotency_key: str = "") -> RunRequest:
    """A run from a prompt, which becomes a user's message unless it is raw, or from messages.

    Raises:
        InvalidRequest: the message is empty, or says what it cannot.
    """
    if body.messages is not None:
        prompt: Any = tuple(
            core_chat_message(at, message) for at, message in enumerate(body.messages)
        )
    elif body.raw:
        prompt = body.prompt
    elif not body.prompt:
        raise InvalidRequest("the prompt is empty", "prompt")
    else:
        prompt = (core_chat_message(0, body.as_message()),)
    return RunRequest(
        kind=RunKind.TEXT,
        model=body.model or "",
        prompts=(prompt,),
        prompt_param="prompt" if body.messages is None else "messages",
        num_choices=body.n or 1,
        options=options_of(body, body.max_tokens),
        stop=tuple(body.stop or ()),
        tenant=tenant,
        priority=body.priority or 0,
        truncate=body.truncate,
        terms=run_terms(RunKind.TEXT, body, idempotency_key),
    )


#: After how long an `EventSource` that was cut off tries again.
RETRY_MS = 1000


class TextEncoder:
    """Events of one run to the lines of `/v1/stream` and `/v1/runs/{id}/events`.

    Text is `data: {"text": …}`, with an `index` if the run has several choices. The end is an
    event of its own, `done`: `error` is the name of what an EventSource itself reports.
    """

    def __init__(self, spec: RunSpec, before: Iterable[RunEvent] = ()) -> None:
        """`before` are the events that the client has seen: the last frame has their reasons."""
        self._has_choices = spec.total_choices > 1
        self._reasons: dict[int, FinishReason | None] = {
            event.index: event.finish_reason for event in before if event.kind is EventKind.FINISH
        }

    def lines(self, event: RunEvent) -> list[bytes]:
        """The frames of one event.

        What has no data is there for the sake of its id: an `EventSource` takes note of it, and
        can go on even if it is cut off before the first text.
        """
        match event.kind:
            case EventKind.START:
                return [b"retry: %d" % RETRY_MS]
            case EventKind.DELTA:
                body: dict[str, Any] = {"text": event.text}
                if self._has_choices:
                    body["index"] = event.index
                return [b"data: " + orjson.dumps(body)]
            case EventKind.FINISH:
                self._reasons[event.index] = event.finish_reason
                return [b": finish"]
        return [b"event: done\ndata: " + orjson.dumps(self._end(event))]

    def _end(self, event: RunEvent) -> dict[str, Any]:
        if event.error is not None:
            return run_error(event)
        usage = usage_dict(event.usage) if event.usage else None
        if self._has_choices:
            reasons = [self._reasons[index] for index in sorted(self._reasons)]
            return {"finish_reasons": reasons, "usage": usage}
        return {"finish_reason": self._reasons.get(0), "usage": usage}


def run_dict(spec: RunSpec, events: Sequence[RunEvent], *, is_paused: bool) -> dict[str, Any]:
    """A run as an object: where it stands, and its text so far."""
    end = end_of(events)
    texts: list[list[str]] = [[] for _ in range(spec.total_choices)]
    reasons: list[FinishReason | None] = [None] * spec.total_choices
    for event in events:
        if event.kind is EventKind.DELTA:
            texts[event.index].append(event.text)
        elif event.kind is EventKind.FINISH:
            reasons[event.index] = event.finish_reason
    error = None
    if end is not None and end.error is not None:
        error = run_error(end)["error"]
    return {
        "id": spec.run_id,
        "object": "run",
        "created": spec.created_s,
        "model": spec.model,
        "status": _status(end, reasons, is_paused=is_paused),
        "background": spec.terms.background,
        "metadata": dict(spec.terms.metadata),
        "last_seq": events[-1].seq if events else -1,
        "choices": [
            {"index": index, "text": "".join(texts[index]), "finish_reason": reasons[index]}
            for index in range(spec.total_choices)
        ],
        "usage": usage_dict(end.usage) if end is not None and end.usage else None,
        "error": error,
        "events_url": f"/v1/runs/{spec.run_id}/events",
    }


def _status(
    end: RunEvent | None, reasons: Sequence[FinishReason | None], *, is_paused: bool
) -> str:
    if end is None:
        return "paused" if is_paused else "in_progress"
    if end.error is not None:
        return "failed"
    return "cancelled" if FinishReason.CANCELLED in reasons else "completed"
