"""What a chat template is rendered with: messages, tools, and what the caller adds. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from streamwell.core.messages import ChatOptions, Message, refuse_surrogates

#: Turns a text into one in which nothing counts as a control token.
Mark = Callable[[str], str]

_TOOLS = re.compile(r"\btools\b")


def takes_tools(template: str) -> bool:
    """A template that never says `tools` would leave them out without a word."""
    return _TOOLS.search(template) is not None


def chat_variables(messages: Sequence[Message], options: ChatOptions, mark: Mark) -> dict[str, Any]:
    """The variables of a conversation whose answer is to come, for a template.

    Raises:
        InvalidRequest: a text is not valid Unicode.
    """
    for index, item in enumerate(messages):
        refuse_surrogates(item.content, param=f"messages.{index}.content")
        refuse_surrogates(item.reasoning, param=f"messages.{index}.reasoning_content")
    added = json.loads(options.template_kwargs) if options.template_kwargs else {}
    given = {
        **added,
        "messages": [_as_dict(message) for message in messages],
        "tools": json.loads(options.tools) if options.tools else None,
    }
    return {**_marked(given, mark), "documents": None, "add_generation_prompt": True}


def _as_dict(message: Message) -> dict[str, Any]:
    """A message as templates expect it: the arguments of calls are no text there."""
    said: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        said["reasoning_content"] = message.reasoning
        if not (message.content and message.tool_calls):  # GPT-OSS has one of both before a call
            said["thinking"] = message.reasoning
    if message.tool_calls:
        said["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.loads(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        said["tool_call_id"] = message.tool_call_id
    return said


def _marked(value: Any, mark: Mark) -> Any:  # noqa: ANN401 - JSON
    """The same with all texts marked: a parameter's name is as much the caller's as its text."""
    if isinstance(value, str):
        return mark(value)
    if isinstance(value, dict):
        return {mark(key): _marked(inner, mark) for key, inner in value.items()}
    if isinstance(value, list):
        return [_marked(inner, mark) for inner in value]
    return value
