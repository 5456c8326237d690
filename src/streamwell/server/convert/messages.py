"""Messages in the shape of the Responses API and of conversations, both ways, and lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from streamwell.core.conversation import Conversation
from streamwell.core.errors import AfterNotFound
from streamwell.core.ids import message_id
from streamwell.core.types import EventKind, FinishReason, Message, RunEvent
from streamwell.server.convert.tools import beside_text
from streamwell.server.schemas.openai import ChatMessage
from streamwell.server.schemas.responses import InputMessage

#: What a client says, and is told, in the place of an item for the beginning of a conversation.
ROOT = "root"


def core_message(message: InputMessage | ChatMessage) -> Message:
    """The words of a message as the chat template gets them."""
    role = "system" if message.role == "developer" else message.role
    # an answer is told in pieces; what others say in several parts is several things
    between = "" if role == "assistant" else "\n"
    return Message(role, between.join(part.text for part in message.content))


class Standing:
    """What the events of a run with one choice say of its answer so far."""

    def __init__(self, events: Iterable[RunEvent] = ()) -> None:
        self.reason: FinishReason | None = None
        self.end: RunEvent | None = None
        self._texts: list[str] = []
        for event in events:
            self.add(event)

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def status(self) -> str:
        """That of the response."""
        if self.end is None:
            return "in_progress"
        if self.end.error is not None:
            return "failed"
        if self.reason is FinishReason.CANCELLED:
            return "cancelled"
        return "incomplete" if self.reason is FinishReason.LENGTH else "completed"

    @property
    def message_status(self) -> str:
        """That of the message, which knows fewer words, and is whole before the run has ended."""
        if self.reason is None:
            return "in_progress"
        is_whole = self.reason in (FinishReason.STOP, FinishReason.TOOL_CALLS)
        return "completed" if is_whole else "incomplete"

    def add(self, event: RunEvent) -> None:
        if event.kind is EventKind.DELTA:
            self._texts.append(event.text)
        elif event.kind is EventKind.FINISH:
            self.reason = event.finish_reason
        elif event.kind is EventKind.END:
            self.end = event


def text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def message_dict(item_id: str, message: Message, status: str = "completed") -> dict[str, Any]:
    """One item; what the assistant said is output, wherever it stands."""
    is_output = message.role == "assistant"
    part = (
        text_part(message.content) if is_output else {"type": "input_text", "text": message.content}
    )
    return {
        "id": item_id,
        "type": "message",
        "status": status,
        "role": message.role,
        "content": [part],
        **beside_text(message),
    }


def input_items(run_id: str, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages that a run answers, oldest first."""
    base = message_id(run_id)
    return [message_dict(f"{base}_{at}", message) for at, message in enumerate(messages)]


def previous_item(sent: str | None) -> str | None:
    """Where in a conversation a client wants to go on; see `ConversationItem.previous_id`."""
    return "" if sent == ROOT else sent


def conversation_dict(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.conversation_id,
        "object": "conversation",
        "created_at": conversation.created_s,
        "metadata": dict(conversation.metadata),
    }


def list_dict(data: Sequence[dict[str, Any]], limit: int) -> dict[str, Any]:
    """A page of a list, from up to `limit + 1` entries: one more tells that there are more."""
    page = list(data[:limit])
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(data) > limit,
    }


def page_of(
    data: list[dict[str, Any]], *, limit: int, after: str, newest_first: bool
) -> dict[str, Any]:
    """A page of entries that are all at hand, oldest first.

    Raises:
        AfterNotFound: none of them has the id `after`.
    """
    ordered = data[::-1] if newest_first else data
    if after:
        ids = [entry["id"] for entry in ordered]
        if after not in ids:
            raise AfterNotFound
        ordered = ordered[ids.index(after) + 1 :]
    return list_dict(ordered, limit)
