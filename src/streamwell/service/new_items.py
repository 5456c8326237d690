"""Items that a conversation gets: what was said in it, and the answers that runs give."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

from streamwell.core.conversation import ConversationItem
from streamwell.core.ids import message_id
from streamwell.core.types import Message, RunSpec


def new_items(messages: Sequence[Message], previous_id: str = "") -> list[ConversationItem]:
    """Messages one after another, the first of them after an item; the empty id is none."""
    new = [
        ConversationItem(item_id=f"msg_{secrets.token_hex(16)}", message=message)
        for message in messages
    ]
    return _in_a_row(new, previous_id)


def _in_a_row(items: Sequence[ConversationItem], previous_id: str) -> list[ConversationItem]:
    """The first comes after an item, and each of the others after the one before it."""
    before = [previous_id, *(item.item_id for item in items)]
    return [
        replace(item, previous_id=item_id) for item, item_id in zip(items, before, strict=False)
    ]


def items_of(spec: RunSpec, num_new: int) -> list[ConversationItem]:
    """What a run adds to its conversation: what is new in what it was asked, and its answer."""
    if not spec.terms.conversation_id:
        return []
    base = message_id(spec.run_id)
    messages = spec.terms.messages
    first = len(messages) - num_new
    new = [
        ConversationItem(item_id=f"{base}_{first + at}", message=message)
        for at, message in enumerate(messages[first:])
    ]
    answer = ConversationItem(item_id=base, run_id=spec.run_id)
    return _in_a_row([*new, answer], spec.terms.previous_item_id or "")
