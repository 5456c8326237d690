"""What is said in a chat: messages, calls of tools, and the parts that an answer is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from streamwell.core.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function that the assistant wants called."""

    name: str
    #: A JSON object.
    arguments: str
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; `role` is `system`, `user`, `assistant` or `tool`."""

    role: str
    content: str
    #: What the assistant called.
    tool_calls: tuple[ToolCall, ...] = ()
    #: The call whose result a tool's message is; empty for other roles.
    tool_call_id: str = ""
    #: What the assistant thought before it said this.
    reasoning: str = ""


def num_kept_bytes(messages: Iterable[Message]) -> int:
    """What these messages take where they are kept."""
    return sum(
        len(text.encode("utf-8", "surrogatepass"))
        for message in messages
        for text in (
            message.content,
            message.reasoning,
            *(call.arguments for call in message.tool_calls),
        )
    )


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What the chat template gets beside the messages."""

    #: Tools that may be called, as a JSON list in OpenAI's format; empty: none.
    tools: str = ""
    #: Variables of the model's own template, as a JSON object; empty: none.
    template_kwargs: str = ""


class PartKind(StrEnum):
    """What a part of an answer is."""

    CONTENT = "content"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"


class AnswerPart(NamedTuple):
    """A piece of an answer: more text of one kind, or a whole call of a tool."""

    kind: PartKind
    #: Of a call, its arguments: a JSON object.
    text: str
    #: The function of a call, and which of the calls of its choice it is, from 0.
    name: str = ""
    number: int = 0


def refuse_surrogates(text: str, param: str) -> None:
    """Raises `InvalidRequest` for what JSON can spell and nobody can encode or store."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest("The text has half a surrogate pair in it.", param) from error
