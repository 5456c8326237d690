"""OpenAI requests to run requests, and a run's events to OpenAI answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from streamwell.core.errors import InvalidRequest
from streamwell.core.types import (
    EventKind,
    FinishReason,
    Message,
    RunEvent,
    RunKind,
    RunRequest,
    RunSpec,
    RunTerms,
    SamplingOptions,
    Usage,
    end_of,
)
from streamwell.server.convert.dialects import OPENAI, Dialect
from streamwell.server.convert.fingerprint import fingerprint
from streamwell.server.convert.messages import core_message, previous_item
from streamwell.server.convert.tools import (
    answer_message,
    beside_text,
    chat_options,
    core_calls,
    part_delta,
)
from streamwell.server.error_body import run_error
from streamwell.server.schemas.fields import GenerationRequest
from streamwell.server.schemas.openai import ChatMessage, ChatRequest, CompletionRequest
from streamwell.server.schemas.responses import ResponseRequest

#: Parts of a message that would change the prompt.
_UNSUPPORTED_IN_MESSAGES = ("function_call", "audio")


def chat_run(body: ChatRequest, tenant: str, idempotency_key: str = "") -> RunRequest:
    """A chat request as a run of one prompt."""
    _check_chat(body)
    messages = tuple(core_chat_message(at, message) for at, message in enumerate(body.messages))
    terms = run_terms(RunKind.CHAT, body, idempotency_key)
    if body.store:
        terms = replace(terms, messages=messages)
    if body.conversation:
        terms = replace(terms, **_conversation_terms(body, messages))
    return RunRequest(
        kind=RunKind.CHAT,
        model=body.model or "",
        prompts=(messages,),
        prompt_param="messages",
        terms=terms,
        num_choices=body.n or 1,
        options=options_of(body, body.max_completion_tokens or body.max_tokens),
        chat=chat_options(body),
        stop=tuple(body.stop or ()),
        tenant=tenant,
        priority=body.priority or 0,
        truncate=body.truncate,
    )


def _check_chat(body: ChatRequest) -> None:
    if not body.messages and not body.conversation:
        raise InvalidRequest("give at least one message", "messages")
    check_conversation(body)
    if body.conversation and body.n not in (None, 1):
        raise InvalidRequest("a conversation gets one choice", "n")


def check_conversation(body: ChatRequest | ResponseRequest) -> None:
    """Raises `InvalidRequest`: a field does not go with a conversation, or belongs to one."""
    if body.previous_item_id and not body.conversation:
        raise InvalidRequest("belongs to a conversation", "previous_item_id")
    if body.store is False and body.conversation:
        raise InvalidRequest("a conversation keeps its answers", "store")


def _conversation_terms(body: ChatRequest, messages: tuple[Message, ...]) -> dict[str, Any]:
    """A system message that comes first is for this answer only, and not kept."""
    has_instructions = bool(messages) and messages[0].role == "system"
    return {
        "store": body.store is not False,
        "instructions": messages[0].content if has_instructions else None,
        "messages": messages[has_instructions:],
        "conversation_id": body.conversation,
        "previous_item_id": previous_item(body.previous_item_id),
    }


def completion_run(body: CompletionRequest, tenant: str, idempotency_key: str = "") -> RunRequest:
    """A completion request as a run of one or more prompts."""
    prompts = tuple(p if isinstance(p, str) else tuple(p) for p in body.prompt)
    return RunRequest(
        kind=RunKind.COMPLETION,
        model=body.model or "",
        prompts=prompts,
        terms=run_terms(RunKind.COMPLETION, body, idempotency_key),
        num_choices=body.n or 1,
        options=options_of(body, body.max_tokens),
        stop=tuple(body.stop or ()),
        tenant=tenant,
        priority=body.priority or 0,
        truncate=body.truncate,
    )


def run_terms(kind: RunKind, body: GenerationRequest, idempotency_key: str) -> RunTerms:
    """What any generating request says of the life of its run."""
    options = body.stream_options
    return RunTerms(
        background=bool(body.background),
        store=body.store,
        idempotency_key=idempotency_key,
        fingerprint=fingerprint(kind, body) if idempotency_key else "",
        include_usage=bool(options and options.include_usage),
        metadata=tuple((body.metadata or {}).items()),
    )


def core_chat_message(at: int, message: ChatMessage) -> Message:
    """A message as the chat template gets it; raises `InvalidRequest` for what it cannot say."""
    for name in _UNSUPPORTED_IN_MESSAGES:
        if (message.model_extra or {}).get(name):
            raise InvalidRequest(f"{name} is not supported yet", f"messages.{at}.{name}")
    if message.reasoning_content and message.role != "assistant":
        param = f"messages.{at}.reasoning_content"
        raise InvalidRequest("only the assistant has thoughts", param)
    return replace(
        core_message(message),
        tool_calls=core_calls(at, message),
        tool_call_id=message.tool_call_id or "",
        reasoning=message.reasoning_content or "",
    )


def options_of(body: GenerationRequest, max_tokens: int | None) -> SamplingOptions:
    """What the request says of sampling."""
    return SamplingOptions(
        max_tokens=max_tokens,
        seed=body.seed,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=None if body.top_k is None else max(body.top_k, 0),
        min_p=body.min_p,
        repetition_penalty=body.repetition_penalty,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        logit_bias=tuple((body.logit_bias or {}).items()),
        min_tokens=body.min_tokens or 0,
        ignore_eos=bool(body.ignore_eos),
        stop_token_ids=tuple(body.stop_token_ids or ()),
    )


def usage_dict(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


class ChunkEncoder:
    """Events of one run to the JSON of its stream's frames."""

    def __init__(self, spec: RunSpec, dialect: Dialect = OPENAI) -> None:
        """The dialect is for chats only."""
        self._is_chat = spec.kind is RunKind.CHAT
        self._shape = (dialect if self._is_chat else OPENAI).chunk
        self._include_usage = spec.terms.include_usage
        self._head: dict[str, Any] = {
            "id": spec.run_id,
            "object": "chat.completion.chunk" if self._is_chat else "text_completion",
            "created": spec.created_s,
            "model": spec.model,
            "system_fingerprint": None,
        }
        #: What stands before and after the text in the chunks of a choice, always the same.
        self._around_text: dict[int, tuple[bytes, bytes]] = {}

    def payloads(self, event: RunEvent) -> list[bytes]:
        """The frames of one event: usually one, none if there is nothing to say."""
        match event.kind:
            case EventKind.START:
                # for a completion an empty text: it brings the id from which to go on
                role = {"role": "assistant", "content": ""}
                return [self._chunk(event, role)]
            case EventKind.DELTA if event.parts is None:
                before, after = self._around_text.get(event.index) or self._split(event)
                return [before + orjson.dumps(event.text) + after]
            case EventKind.DELTA:
                # what is held back brings its number all the same, so that no number is missing
                return self._parts(event) or [self._chunk(event, {})]
            case EventKind.FINISH:
                is_error = event.finish_reason is FinishReason.ERROR
                return (
                    []
                    if is_error
                    else [*self._parts(event), self._chunk(event, {}, event.finish_reason)]
                )
        return self._end(event)

    def _parts(self, event: RunEvent) -> list[bytes]:
        """A chunk for each part of the answer; only chats have any."""
        run_id = self._head["id"]
        return [
            self._chunk(event, part_delta(run_id, event.index, part)) for part in event.parts or ()
        ]

    def _split(self, event: RunEvent) -> tuple[bytes, bytes]:
        before, _, after = self._chunk(event, {"content": ""}).rpartition(b'""')
        self._around_text[event.index] = before, after
        return before, after

    def _chunk(
        self, event: RunEvent, delta: dict[str, Any], reason: FinishReason | None = None
    ) -> bytes:
        choice: dict[str, Any] = {"index": event.index}
        if self._is_chat:
            choice["delta"] = delta
        else:
            choice["text"] = delta.get("content", "")
        choice["logprobs"] = None
        choice["finish_reason"] = reason
        chunk: dict[str, Any] = {**self._head, "choices": [choice]}
        if self._include_usage:
            chunk["usage"] = None
        return orjson.dumps(self._shape(chunk))

    def _end(self, event: RunEvent) -> list[bytes]:
        if event.error is not None:
            return [orjson.dumps(run_error(event))]
        payloads = [b"[DONE]"]
        if self._include_usage and event.usage is not None:
            chunk: dict[str, Any] = {
                **self._head,
                "choices": [],
                "usage": usage_dict(event.usage),
            }
            payloads.insert(0, orjson.dumps(self._shape(chunk)))
        return payloads


def completion_dict(spec: RunSpec, events: Sequence[RunEvent]) -> dict[str, Any]:
    """A run as a completion object: the answer, once all of its events are there."""
    of_choice: list[list[RunEvent]] = [[] for _ in range(spec.total_choices)]
    for event in events:
        of_choice[event.index].append(event)
    end = end_of(events)
    is_chat = spec.kind is RunKind.CHAT
    choices = [_choice(spec, index, of_choice[index]) for index in range(spec.total_choices)]
    metadata = {"metadata": dict(spec.terms.metadata)} if spec.terms.store else {}
    return {
        "id": spec.run_id,
        "object": "chat.completion" if is_chat else "text_completion",
        "created": spec.created_s,
        "model": spec.model,
        "system_fingerprint": None,
        "choices": choices,
        "usage": usage_dict(end.usage) if end and end.usage else None,
        **metadata,
    }


def stored_messages(spec: RunSpec) -> list[dict[str, Any]]:
    """The messages that a stored completion answers, oldest first."""
    return [_stored_message(spec, at, item) for at, item in enumerate(spec.terms.messages)]


def _stored_message(spec: RunSpec, at: int, message: Message) -> dict[str, Any]:
    body: dict[str, Any] = {"id": f"{spec.run_id}-{at}", "role": message.role}
    body |= {"content": message.content, "name": None}
    return body | beside_text(message)


def _choice(spec: RunSpec, index: int, events: Sequence[RunEvent]) -> dict[str, Any]:
    """One choice, from its events."""
    if spec.kind is RunKind.CHAT:
        body: dict[str, Any] = {"message": answer_message(spec.run_id, index, events)}
    else:
        body = {"text": "".join(event.text for event in events)}
    reasons = [event.finish_reason for event in events if event.kind is EventKind.FINISH]
    reason = reasons[0] if reasons else None
    return {"index": index, **body, "logprobs": None, "finish_reason": reason}
