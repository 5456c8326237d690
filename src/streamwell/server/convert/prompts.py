"""Prompts in the manner of a preset to runs, and a run's events to frames up to `[DONE]`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from streamwell.core.types import (
    EventKind,
    FinishReason,
    Message,
    Prompt,
    RunEvent,
    RunKind,
    RunRequest,
    RunSpec,
    RunTerms,
)
from streamwell.server.convert.openai import options_of, run_terms
from streamwell.server.convert.text import RETRY_MS
from streamwell.server.error_body import run_error
from streamwell.server.schemas.fields import SamplingFields
from streamwell.server.schemas.prompts import PLACE, ChatbotRequest, Preset, PresetRequest

#: What a request says itself stands in place of what its preset says.
_DEFAULTS = tuple(name for name in SamplingFields.model_fields if name != "stop")


def filled(preset: Preset, prompt: str) -> Prompt:
    """The prompt as the model gets it: within the template, or as a user's message.

    A template is no language: its one place is replaced, and nothing is looked for in the prompt.
    """
    if preset.template is None:
        return (Message("user", prompt),)
    before, _, after = preset.template.partition(PLACE)
    return before + prompt + after


def preset_run(
    body: PresetRequest, prompt: Prompt, preset: Preset, kind: RunKind, terms: RunTerms, tenant: str
) -> RunRequest:
    """A run of one prompt; stop strings are those of the preset and of the request together."""
    silent = [name for name in _DEFAULTS if getattr(body, name) is None]
    asked = body.model_copy(update={name: getattr(preset, name) for name in silent})
    return RunRequest(
        kind=kind,
        model=body.model or "",
        prompts=(prompt,),
        options=options_of(asked, asked.max_tokens),
        stop=(*(preset.stop or ()), *(body.stop or ())),
        tenant=tenant,
        priority=body.priority or 0,
        terms=terms,
        joins_messages=True,
        truncate=body.truncate,
    )


def prompt_run(
    body: PresetRequest, prompt: str, preset: Preset, tenant: str, idempotency_key: str = ""
) -> RunRequest:
    """A run of a prompt that stands alone."""
    terms = run_terms(RunKind.TEXT, body, idempotency_key)
    return preset_run(body, filled(preset, prompt), preset, RunKind.TEXT, terms, tenant)


def chatbot_run(
    body: ChatbotRequest, prompt: str, preset: Preset, tenant: str, previous_run_id: str
) -> RunRequest:
    """A run that answers a prompt after all that was said up to the end of another run."""
    message = Message("user", prompt)
    terms = replace(
        run_terms(RunKind.RESPONSE, body, ""),
        messages=(message,),
        previous_run_id=previous_run_id,
    )
    return preset_run(body, (message,), preset, RunKind.RESPONSE, terms, tenant)


class DoneEncoder:
    """Events of one run to the lines of `/generate-stream` and `/query-stream/`.

    Text is `data: {"text": …}`, with an `index` if the run has several choices; the last of a
    choice is empty and has its `finish_reason`. Then comes `data: [DONE]`, or `data: {"error": …}`.
    """

    def __init__(self, spec: RunSpec) -> None:
        self._has_choices = spec.total_choices > 1

    def lines(self, event: RunEvent) -> list[bytes]:
        """The frames of one event; what has no data is there for the sake of its id."""
        match event.kind:
            case EventKind.START:
                return [b"retry: %d" % RETRY_MS]
            case EventKind.DELTA:
                return [self._data(event, {"text": event.text})]
            case EventKind.FINISH if event.finish_reason is FinishReason.ERROR:
                return [b": failed"]
            case EventKind.FINISH:
                return [self._data(event, {"text": "", "finish_reason": event.finish_reason})]
        return [b"data: " + self._end(event)]

    def _end(self, event: RunEvent) -> bytes:
        if event.error is None:
            return b"[DONE]"
        return orjson.dumps(run_error(event))

    def _data(self, event: RunEvent, body: dict[str, Any]) -> bytes:
        if self._has_choices:
            body["index"] = event.index
        return b"data: " + orjson.dumps(body)
