"""Requests of the OpenAI API that are served."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, FailFast, Field, model_validator

from streamwell.server.schemas.fields import (
    MAX_MESSAGES,
    MAX_PARTS,
    MAX_PROMPT_IDS,
    MAX_PROMPTS,
    GenerationRequest,
    InConversation,
    TokenCount,
    WireModel,
)
from streamwell.server.schemas.tools import CalledTools, CallId, JsonObject, Tools


class TextPart(WireModel):
    """One part of a message's content; only text is served."""

    type: Literal["text"]
    text: str


def as_parts(value: Any) -> Any:  # noqa: ANN401 - a validator takes whatever was sent
    if not isinstance(value, str | list):
        raise ValueError("must be a string or a list of text parts")  # noqa: TRY004 - pydantic's own
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


class ChatMessage(WireModel):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        list[TextPart], FailFast(), BeforeValidator(as_parts), Field(max_length=MAX_PARTS)
    ]
    tool_calls: CalledTools
    tool_call_id: CallId | None = None
    #: Of the assistant, as it was answered.
    reasoning_content: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _calls_are_enough(cls, value: Any) -> Any:  # noqa: ANN401 - whatever was sent
        """A message that calls tools may say nothing beside."""
        if isinstance(value, dict) and value.get("tool_calls") and value.get("content") is None:
            return {**value, "content": ""}
        return value


class ChatRequest(InConversation, GenerationRequest):
    """`POST /v1/chat/completions`."""

    #: In a conversation, what is new; there may be nothing.
    messages: Annotated[list[ChatMessage], FailFast(), Field(max_length=MAX_MESSAGES)]
    max_completion_tokens: TokenCount | None = None
    truncate: TokenCount | None = None
    tools: Tools
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    #: Variables of the model's own chat template.
    chat_template_kwargs: JsonObject | None = None


def _as_prompts(value: Any) -> Any:  # noqa: ANN401 - a validator takes whatever was sent
    """One text, one list of ids, or a list of either, as a list.

    An empty text stays: whether there is anything in it, the tokenizer decides.
    """
    is_ids = isinstance(value, list) and bool(value) and _is_id(value[0])
    prompts = [value] if is_ids or isinstance(value, str) else value
    if not isinstance(prompts, list):
        raise ValueError("must be text or token ids")  # noqa: TRY004 - pydantic's own
    if len(prompts) > MAX_PROMPTS:
        raise ValueError(f"at most {MAX_PROMPTS} prompts")
    if not all(_is_prompt(prompt) for prompt in prompts):
        raise ValueError("must be a string, a list of strings, token ids, or lists of token ids")
    return prompts


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_prompt(value: object) -> bool:
    if isinstance(value, list):
        if len(value) > MAX_PROMPT_IDS:
            raise ValueError(f"at most {MAX_PROMPT_IDS} token ids")
        return bool(value) and all(_is_id(item) for item in value)
    return isinstance(value, str)


_Ids = Annotated[list[int], Field(min_length=1, max_length=MAX_PROMPT_IDS)]
_Prompts = Annotated[list[str | _Ids], Field(min_length=1, max_length=MAX_PROMPTS)]


class CompletionRequest(GenerationRequest):
    """`POST /v1/completions`."""

    truncate: TokenCount | None = None
    prompt: Annotated[
        list[str | list[int]],
        BeforeValidator(_as_prompts, json_schema_input_type=str | _Ids | _Prompts),
        Field(min_length=1, max_length=MAX_PROMPTS),
    ]
