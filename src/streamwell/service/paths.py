"""Conversations that branch: which items lead to one, and what they tell a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streamwell.core.conversation import ConversationItem
from streamwell.core.errors import InvalidRequest
from streamwell.core.ids import call_id
from streamwell.core.messages import Message, PartKind, ToolCall
from streamwell.core.types import RunEvent


def path_to(items: Sequence[ConversationItem], last_id: str | None) -> tuple[ConversationItem, ...]:
    """The items from the beginning to one of them, each after the one that it follows.

    `items` are all of a conversation, as they were added. `None` is the last item, and an empty id
    the place before all of them.

    Raises:
        InvalidRequest: no item has this id.
    """
    places = {item.item_id: place for place, item in enumerate(items)}
    if last_id is None:
        last_id = items[-1].item_id if items else ""
    if last_id and last_id not in places:
        raise InvalidRequest(f"the conversation has no item {last_id!r}", "previous_item_id")
    path: list[ConversationItem] = []
    place = places.get(last_id, -1)
    while place >= 0:
        path.append(items[place])
        previous = places.get(_previous_id(items, place), -1)
        place = min(previous, place - 1)  # it ends, whatever a database says
    return tuple(reversed(path))


def relinked(items: Sequence[ConversationItem], deleted_id: str) -> list[ConversationItem]:
    """What comes after an item that is to be deleted, as coming after the one before it.

    `items` are all of a conversation, as they were added.
    """
    previous_ids = [_previous_id(items, place) for place in range(len(items))]
    before = dict(zip((item.item_id for item in items), previous_ids, strict=True))
    return [
        replace(item, previous_id=before[deleted_id])
        for item, previous_id in zip(items, previous_ids, strict=True)
        if previous_id == deleted_id and deleted_id in before
    ]


def _previous_id(items: Sequence[ConversationItem], place: int) -> str:
    """What the item in a place comes after; empty: nothing."""
    previous_id = items[place].previous_id
    if previous_id is None:
        return items[place - 1].item_id if place else ""
    return previous_id


def answer_of(run_id: str, events: Sequence[RunEvent]) -> Message:
    """What a run of one choice said, as its model is told of it: without thoughts."""
    texts, calls = [], []
    for event in events:
        for part in event.answer_parts:
            if part.kind is PartKind.CONTENT:
                texts.append(part.text)
            elif part.kind is PartKind.TOOL_CALL:
                calls.append(ToolCall(part.name, part.text, call_id(run_id, 0, part.number)))
    return Message("assistant", "".join(texts), tuple(calls))
