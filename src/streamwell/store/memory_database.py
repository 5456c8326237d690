"""What `MemoryStore`s keep; several of them may share it, like servers a database."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from streamwell.core.conversation import Conversation, ConversationItem
from streamwell.core.types import RunEvent, RunSpec
from streamwell.store.rows import (
    event_bytes,
    event_to_row,
    events_from_row,
    fold_rows,
    spec_bytes,
)

#: Of `RUN_EVENTS`, those that a folded row fills.
_COLUMNS = ("run_id", "seq", "kind", "choice", "token_ids", "text")
#: Leases count from 1.
NO_LEASE = 0


@dataclass(slots=True)
class StoredRun:
    """A run with its events by `seq`."""

    spec: RunSpec
    lease_id: int
    events: dict[int, RunEvent] = field(default_factory=dict)
    ended_s: float | None = None
    #: Of a folded run all events as one row of `RUN_EVENTS`: as objects they take 35 times as much.
    folded: dict[str, Any] | None = None

    @property
    def num_bytes(self) -> int:
        """What a database would need for it; events count from the end on."""
        if self.folded is not None:
            return spec_bytes(self.spec) + len(self.folded["text"])
        events = () if self.ended_s is None else self.events.values()
        return spec_bytes(self.spec) + sum(event_bytes(event) for event in events)

    def fold(self) -> None:
        """Of a run that has ended; nothing may be added to it any more."""
        self.folded = fold_rows([event_to_row(event) for event in self.in_order()])
        self.events = {}

    def in_order(self) -> list[RunEvent]:
        """All of its events."""
        if self.folded is not None:
            return events_from_row([self.folded[name] for name in _COLUMNS])
        return [self.events[seq] for seq in sorted(self.events)]


@dataclass(slots=True)
class StoredConversation:
    """A conversation with its items by id, in their order."""

    conversation: Conversation
    items: dict[str, ConversationItem]


class MemoryDatabase:
    """Runs, conversations and leases in dictionaries."""

    def __init__(self) -> None:
        self.runs: dict[str, StoredRun] = {}
        self.conversations: dict[str, StoredConversation] = {}
        #: Leases of which somebody has adopted runs.
        self.revoked_ids: set[int] = set()
        self._live_ids: set[int] = set()
        self._num_leases = 0

    def take_lease(self) -> int:
        """The id of a new lease."""
        self._num_leases += 1
        self._live_ids.add(self._num_leases)
        return self._num_leases

    def end_lease(self, lease_id: int) -> None:
        """Its runs may be adopted from now on."""
        self._live_ids.discard(lease_id)

    def is_alive(self, lease_id: int) -> bool:
        """Nobody may adopt runs of this lease."""
        return lease_id in self._live_ids and lease_id not in self.revoked_ids
