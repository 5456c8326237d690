"""Items of conversations in the shape of the Responses API, with what Streamwell adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamwell.core.conversation import ConversationItem
from streamwell.core.types import Message, RunEvent, end_of
from streamwell.server.convert.messages import ROOT, Standing, message_dict
from streamwell.server.convert.openai import usage_dict
from streamwell.server.convert.tools import answer_message


def item_dict(item: ConversationItem, model: str, events: Sequence[RunEvent]) -> dict[str, Any]:
    """An item of a conversation; one whose run has been deleted has lost its text."""
    place = {"previous_item_id": ROOT if item.previous_id == "" else item.previous_id}
    if item.message is None:
        return _answer(item, model, events) | place
    return message_dict(item.item_id, item.message) | place


def _answer(item: ConversationItem, model: str, events: Sequence[RunEvent]) -> dict[str, Any]:
    """What a run answers, as far as it is: an item that is in progress can be followed."""
    standing, said = Standing(events), answer_message(item.run_id, 0, events)
    status = standing.message_status if events else "incomplete"
    body = message_dict(item.item_id, Message("assistant", said["content"] or ""), status)
    body |= {"run_id": item.run_id, "model": model or None, "finish_reason": standing.reason}
    body |= {name: said[name] for name in ("reasoning_content", "tool_calls") if name in said}
    end = end_of(events)
    body["usage"] = usage_dict(end.usage) if end and end.usage else None
    body["error"] = end.error if end else None
    return body
