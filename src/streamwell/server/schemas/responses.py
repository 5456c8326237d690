"""Requests of the Responses API, and the messages that conversations share with it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, FailFast, Field

from streamwell.server.schemas.fields import (
    MAX_MESSAGES,
    MAX_PARTS,
    GenerationRequest,
    InConversation,
    ObjectId,
    TokenCount,
    WireModel,
)
from streamwell.server.schemas.openai import as_parts


def _whole_characters(value: str) -> str:
    """What is kept without being encoded by a tokenizer must be fit to be kept."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"is not valid Unicode at character {error.start}") from None
    return value


_Text = Annotated[str, AfterValidator(_whole_characters)]


class InputPart(WireModel):
    """One part of a message's content; only text is served."""

    type: Literal["input_text", "output_text", "text"]
    text: _Text


def _not_taken(value: Any) -> None:  # noqa: ANN401 - whatever was sent
    if value:
        raise ValueError("is taken in messages of chat completions only")


_NotTaken = Annotated[Any, AfterValidator(_not_taken)]


class InputMessage(WireModel):
    """One item of the input; only messages of words are served."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[
        list[InputPart], FailFast(), BeforeValidator(as_parts), Field(max_length=MAX_PARTS)
    ]
    function_call: _NotTaken = None
    tool_call_id: _NotTaken = None
    tool_calls: _NotTaken = None


def _as_messages(value: Any) -> Any:  # noqa: ANN401 - a validator takes whatever was sent
    if not isinstance(value, str | list | None):
        raise ValueError("must be a string or a list of messages")  # noqa: TRY004 - pydantic's own
    return [{"role": "user", "content": value}] if isinstance(value, str) else value or []


class ResponseRequest(InConversation, GenerationRequest):
    """`POST /v1/responses`."""

    # not `… | None`: a union with `FailFast` cannot be made
    input: Annotated[
        list[InputMessage],
        FailFast(),
        BeforeValidator(_as_messages),
        Field(default_factory=list, max_length=MAX_MESSAGES),
    ]
    instructions: _Text | None = None
    max_output_tokens: TokenCount | None = None
    previous_response_id: ObjectId | None = None
