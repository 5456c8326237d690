"""Tools in chat requests, and calls of them in messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, FailFast, Field

from streamwell.core.json_values import json_of, parse_json
from streamwell.server.schemas.fields import WireModel, none_as_empty

MAX_TOOLS = 128
#: In one message; what the model called is to come back as it was.
MAX_CALLS = 2048
MAX_DESCRIPTION_CHARS = 1 << 16
#: Of one JSON value: the parameters of a tool, variables of a template.
MAX_JSON_CHARS = 1 << 16


def _small_json(value: Any) -> Any:  # noqa: ANN401 - a validator takes whatever was sent
    size = len(json_of(value)) if isinstance(value, dict) else 0
    if size > MAX_JSON_CHARS:
        raise ValueError(f"has {size} characters as JSON, over {MAX_JSON_CHARS}")
    return value


def _whole(text: str) -> str:
    json_of(text)
    return text


def _is_object(text: str) -> str:
    if text and not isinstance(parse_json(text), dict):
        raise ValueError("must be a JSON object, as text")
    return text or "{}"


JsonObject = Annotated[dict[str, Any], BeforeValidator(_small_json)]
#: As long as the model wrote them: the body has its own limit.
Arguments = Annotated[str, AfterValidator(_is_object)]
FunctionName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
Description = Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS), AfterValidator(_whole)]
#: Printable ASCII without spaces.
CallId = Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,128}$")]


class FunctionDefinition(WireModel):
    """A function that the model may call."""

    name: FunctionName
    description: Description | None = None
    #: A JSON Schema; shown to the model, and not enforced.
    parameters: JsonObject | None = None
    strict: bool | None = None


class Tool(WireModel):
    """Something that the model may call; only functions are served."""

    type: Literal["function"]
    function: FunctionDefinition


class CalledFunction(WireModel):
    """What was called, and with what."""

    name: FunctionName
    arguments: Arguments


class CalledTool(WireModel):
    """One call in a message of the assistant."""

    id: CallId
    type: Literal["function"] = "function"
    function: CalledFunction


# not `… | None`: a union with `FailFast` cannot be made
Tools = Annotated[
    list[Tool],
    FailFast(),
    BeforeValidator(none_as_empty),
    Field(default_factory=list, max_length=MAX_TOOLS),
]
CalledTools = Annotated[
    list[CalledTool],
    FailFast(),
    BeforeValidator(none_as_empty),
    Field(default_factory=list, max_length=MAX_CALLS),
]
