"""Stored conversations, and which part of a list is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamwell.core.types import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A stored conversation; its items are kept apart."""

    conversation_id: str
    tenant: str
    #: Seconds since the epoch.
    created_s: int
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationItem:
    """One item of a conversation: a message, or the answer that a run gives."""

    item_id: str
    message: Message | None = None
    #: The run whose text is the assistant's message; empty if there is a message.
    run_id: str = ""
    #: The item that it comes after; empty: none. `None`: the one that was added before it.
    previous_id: str | None = None


#: The id of a conversation, and what comes at its end.
NewItems = tuple[str, Sequence[ConversationItem]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Which part of a list: after the entry of this id, so many, oldest or newest first."""

    limit: int = 20
    after: str = ""
    newest_first: bool = True
