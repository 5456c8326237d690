"""Tools and calls of them: OpenAI's JSON to core values and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streamwell.core.errors import InvalidRequest
from streamwell.core.ids import call_id
from streamwell.core.json_values import json_of
from streamwell.core.messages import AnswerPart, ChatOptions, Message, PartKind, ToolCall
from streamwell.core.types import RunEvent
from streamwell.server.schemas.openai import ChatMessage, ChatRequest
from streamwell.server.schemas.tools import FunctionDefinition

#: Variables of a chat template that the server itself decides.
_RESERVED = ("add_generation_prompt", "documents", "messages", "tools")


def chat_options(body: ChatRequest) -> ChatOptions:
    """What the chat template gets beside the messages.

    Raises:
        InvalidRequest: names the field that is not served, or does not fit the others.
    """
    if body.tool_choice not in (None, "auto", "none"):
        raise InvalidRequest('only "auto" and "none" are supported yet', "tool_choice")
    if body.tools and body.parallel_tool_calls is False:
        raise InvalidRequest("false is not supported yet", "parallel_tool_calls")
    for name in _RESERVED:
        if name in (body.chat_template_kwargs or {}):
            message = "the server decides it"
            raise InvalidRequest(message, f"chat_template_kwargs.{name}")
    names = [tool.function.name for tool in body.tools]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise InvalidRequest(f"there are two tools {name!r}", f"tools.{at}.function.name")
    tools = [] if body.tool_choice == "none" else body.tools
    return ChatOptions(
        tools=json_of([_tool_dict(tool.function) for tool in tools]) if tools else "",
        template_kwargs=json_of(body.chat_template_kwargs) if body.chat_template_kwargs else "",
    )


def _tool_dict(function: FunctionDefinition) -> dict[str, Any]:
    """A tool as chat templates expect it."""
    described: dict[str, Any] = {
        "name": function.name,
        "description": function.description or "",
        "parameters": function.parameters or {"type": "object", "properties": {}},
    }
    return {"type": "function", "function": described}


def core_calls(at: int, message: ChatMessage) -> tuple[ToolCall, ...]:
    """The calls in a message, or raises `InvalidRequest` if it is not the assistant's."""
    if message.tool_calls and message.role != "assistant":
        raise InvalidRequest("only the assistant calls tools", f"messages.{at}.tool_calls")
    if (message.role == "tool") != (message.tool_call_id is not None):
        raise InvalidRequest(
            "belongs to the messages of tools, and to all of them", f"messages.{at}.tool_call_id"
        )
    return tuple(
        ToolCall(call.function.name, call.function.arguments, call.id)
        for call in message.tool_calls
    )


def part_delta(run_id: str, choice: int, part: AnswerPart) -> dict[str, Any]:
    """The delta of a chunk that says a part."""
    if part.kind is PartKind.TOOL_CALL:
        return {"tool_calls": [{"index": part.number, **_call_dict(run_id, choice, part)}]}
    name = "content" if part.kind is PartKind.CONTENT else "reasoning_content"
    return {name: part.text}


def answer_message(run_id: str, choice: int, events: Iterable[RunEvent]) -> dict[str, Any]:
    """The assistant's message that the events of one choice make."""
    parts = [part for event in events for part in event.answer_parts]
    texts = {
        kind: "".join(part.text for part in parts if part.kind is kind)
        for kind in (PartKind.CONTENT, PartKind.REASONING)
    }
    calls = [_call_dict(run_id, choice, p) for p in parts if p.kind is PartKind.TOOL_CALL]
    content = texts[PartKind.CONTENT]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if calls and not content else content,
        "refusal": None,
    }
    if texts[PartKind.REASONING]:
        message["reasoning_content"] = texts[PartKind.REASONING]
    if calls:
        message["tool_calls"] = calls
    return message


def beside_text(message: Message) -> dict[str, Any]:
    """What a message that a caller sent says beside its text."""
    said: dict[str, Any] = {
        "reasoning_content": message.reasoning,
        "tool_calls": [_wire_call(c.call_id, c.name, c.arguments) for c in message.tool_calls],
        "tool_call_id": message.tool_call_id,
    }
    return {name: value for name, value in said.items() if value}


def _call_dict(run_id: str, choice: int, part: AnswerPart) -> dict[str, Any]:
    return _wire_call(call_id(run_id, choice, part.number), part.name, part.text)


def _wire_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}
