"""Requests of the Responses API to run requests, and runs to its response objects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamwell.core.errors import InvalidRequest
from streamwell.core.ids import message_id
from streamwell.core.types import FinishReason, Message, RunKind, RunRequest, RunSpec, Usage
from streamwell.server.convert.messages import (
    Standing,
    core_message,
    message_dict,
    previous_item,
)
from streamwell.server.convert.openai import check_conversation, options_of, run_terms
from streamwell.server.schemas.responses import ResponseRequest


def response_run(body: ResponseRequest, tenant: str, idempotency_key: str = "") -> RunRequest:
    """A run that answers the new messages; what came before is added by `Conversations`.

    Raises:
        InvalidRequest: the fields do not go together.
    """
    _check(body)
    messages = tuple(core_message(message) for message in body.input)
    terms = replace(
        run_terms(RunKind.RESPONSE, body, idempotency_key),
        store=body.store is not False,
        messages=messages,
        instructions=body.instructions,
        previous_run_id=body.previous_response_id or "",
        conversation_id=body.conversation or "",
        previous_item_id=previous_item(body.previous_item_id),
    )
    return RunRequest(
        kind=RunKind.RESPONSE,
        model=body.model or "",
        prompts=(messages,),
        prompt_param="input",
        options=options_of(body, body.max_output_tokens or body.max_tokens),
        stop=tuple(body.stop or ()),
        tenant=tenant,
        priority=body.priority or 0,
        terms=terms,
    )


def _check(body: ResponseRequest) -> None:
    if body.previous_response_id and body.conversation:
        raise InvalidRequest(
            "give either conversation or previous_response_id", "previous_response_id"
        )
    check_conversation(body)
    if not body.input and not body.conversation:
        raise InvalidRequest("give a text or at least one message", "input")
    if body.n not in (None, 1):
        raise InvalidRequest("a response has one choice", "n")


def response_dict(spec: RunSpec, standing: Standing, *, is_paused: bool = False) -> dict[str, Any]:
    """A run as a response object, whatever its status.

    A paused run is `queued`: it is not worked on, and goes on when somebody reads it.
    """
    terms = spec.terms
    status = "queued" if is_paused and standing.end is None else standing.status
    is_cut = standing.end is not None and standing.reason is FinishReason.LENGTH
    return {
        "id": spec.run_id,
        "object": "response",
        "created_at": spec.created_s,
        "status": status,
        "background": terms.background,
        "conversation": {"id": terms.conversation_id} if terms.conversation_id else None,
        "error": _error(standing),
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "instructions": terms.instructions,
        "max_output_tokens": spec.sampling.max_tokens,
        "metadata": dict(terms.metadata),
        "model": spec.model,
        "output": _output(spec, standing),
        "parallel_tool_calls": True,
        "previous_response_id": terms.previous_run_id or None,
        "store": terms.store,
        "temperature": spec.sampling.temperature,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": spec.sampling.top_p,
        "truncation": "disabled",
        "usage": _usage(standing.end.usage) if standing.end and standing.end.usage else None,
    }


def answer_item(spec: RunSpec, standing: Standing) -> dict[str, Any]:
    """The message that a run gives, as it stands."""
    answer = Message("assistant", standing.text)
    return message_dict(message_id(spec.run_id), answer, standing.message_status)


def _output(spec: RunSpec, standing: Standing) -> list[dict[str, Any]]:
    has_begun = standing.text or standing.end is not None
    return [answer_item(spec, standing)] if has_begun else []


def _error(standing: Standing) -> dict[str, Any] | None:
    """OpenAI has one code for all that a server may suffer; ours stands in `type`."""
    if standing.end is None or standing.end.error is None:
        return None
    end = standing.end
    return {"code": "server_error", "message": end.error, "type": end.error_code}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
