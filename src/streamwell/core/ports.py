"""The two seams of the house: `Engine` and `Store`. Each has at least two real implementations."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Protocol

from streamwell.core.conversation import Conversation, ConversationItem, NewItems, Page
from streamwell.core.engine_state import EngineInfo, EngineStats, EngineStatus
from streamwell.core.types import GenerateRequest, RunEvent, RunKind, RunSpec, TokenDelta


class Engine(Protocol):
    """Turns prompt ids into token ids."""

    def start(self) -> None:
        """Begin to load, in the background; needs a running event loop. Again after `stop`, too."""
        ...

    async def stop(self) -> None:
        """End every live request with `EngineDied` and free all that the engine holds."""
        ...

    async def ready(self) -> EngineInfo:
        """Wait until requests can be served: after loading, and again after a death.

        Raises:
            LoadError: the model cannot be loaded.
            EngineDied: the engine was stopped.
        """
        ...

    def status(self) -> EngineStatus: ...

    def stats(self) -> EngineStats: ...

    def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenDelta, None]:
        """Yield the tokens of one request as they come.

        The generator is the lease: closing it aborts the request within one engine step and frees
        its KV blocks. Exactly one delta, the last, carries a finish reason; tokens that came
        while the consumer was busy arrive merged in one delta.

        Raises:
            EngineDied: the engine went away first, or is not up.
            SequenceFailed: this request alone cannot go on.
        """
        ...

    async def add_adapter(self, name: str, path: str) -> None:
        """Load a LoRA adapter from a folder; requests may name it from then on.

        It stays when the engine restarts. Adding a name that is there from the same folder is
        harmless.

        Raises:
            LoadError: it cannot be loaded.
            EngineDied: the engine went away first, or is not up.
            ValueError: the name is empty, or that of an adapter from another folder.
        """
        ...

    async def remove_adapter(self, name: str) -> None:
        """Forget an adapter; its live requests end with `SequenceFailed`.

        An unknown name is harmless.
        """
        ...


class Store(Protocol):
    """Keeps runs, their events, and conversations. Any number of servers share one.

    An open store holds a lease; every run belongs to the lease under which it was created or
    adopted last, and only its holder may append to it. A lease ends with its process, whatever
    ends that. Every method raises `StoreFailed` when the store is not open, or its database
    failed. Ids, tenants, models and keys hold no U+0000; texts may.
    """

    #: What is written outlives the process.
    is_durable: bool

    async def open(self) -> None:
        """Create or migrate what is needed, and take a new lease; idempotent."""
        ...

    async def close(self) -> None:
        """Carry out the calls that have begun, then let go of the lease; idempotent."""
        ...

    async def check_writable(self) -> None:
        """Write something that changes nothing.

        Raises:
            LeaseLost: see `commit`.
        """
        ...

    async def commit(
        self,
        runs: Sequence[RunSpec],
        events: Sequence[RunEvent],
        items: Sequence[NewItems] = (),
    ) -> None:
        """Write new runs, events and items in one transaction; all of it is kept, or nothing.

        An `END` event also marks its run as ended. Items of a conversation that is not there are
        left out. A cancelled call is either carried out or leaves nothing.

        Raises:
            ValueError: a run id, an event's `(run_id, seq)` or an item's id is there already or
                given twice, or an event's run is unknown.
            LeaseLost: somebody has adopted runs of this store's lease; nothing can be written
                until the store is closed and opened again.
        """
        ...

    async def adopt(self, models: Collection[str], run_id: str = "") -> list[RunSpec]:
        """Take over the runs of these models, and this run, if they have no end and no live lease.

        By `created_s`, then id. From then on their former holder can append nothing, should it
        live after all.
        """
        ...

    async def release(self, run_id: str) -> None:
        """Let go of a run of this store's lease, for the next one who adopts; else nothing."""
        ...

    async def run(self, run_id: str) -> RunSpec | None: ...

    async def run_of_key(self, tenant: str, idempotency_key: str) -> RunSpec | None:
        """The newest run that this tenant started under this key; `None` for the empty key."""
        ...

    async def runs(
        self, tenant: str, kind: RunKind, page: Page, *, model: str = ""
    ) -> list[RunSpec]:
        """A tenant's runs that are to be listed (`terms.store`), by `created_s`, then id.

        `page.after` may be any run of the tenant; after an unknown one nothing comes, in this
        list and in the others.
        """
        ...

    async def update_run(self, spec: RunSpec) -> None:
        """Replace the spec of a run; nothing happens if it is not there."""
        ...

    async def delete_run(self, run_id: str) -> bool:
        """Delete a run with its events; false if it is not there."""
        ...

    async def events(self, run_id: str, after_seq: int = -1) -> list[RunEvent]:
        """The events of a run with `seq > after_seq`, in order; empty for an unknown run."""
        ...

    async def fold(self, *, ended_before_s: float) -> int:
        """Make small what is kept of runs that ended before this time; returns how many.

        Their events stay what they are. Nobody may append to them any more: a `(run_id, seq)`
        that comes again is not noticed. Not one transaction: commits get turns in between.
        """
        ...

    async def delete_old(
        self,
        *,
        ended_before_s: float,
        unstored_before_s: float,
        stored_before_s: float,
    ) -> int:
        """Delete ended runs that are old, with their events; returns how many.

        Old is what ended before the first time; where `terms.store` is `False`, before the second
        time too; where it is `True`, only before the third.
        Runs without an end whose lease is gone count as ended when they were created; the second
        time is not for them. Not one transaction: commits get their turn in between.
        """
        ...

    async def delete_oldest(self, *, max_bytes: int) -> int:
        """Delete the runs that ended first, until specs and events take no more than this.

        Returns how many. Events count from the end of their run.
        """
        ...

    async def create_conversation(
        self, conversation: Conversation, items: Sequence[ConversationItem]
    ) -> None:
        """Keep a new conversation with its first items.

        Raises:
            ValueError: its id is there already, or two items have the same.
        """
        ...

    async def conversation(self, conversation_id: str) -> Conversation | None: ...

    async def conversations(self, tenant: str, page: Page) -> list[Conversation]:
        """By `created_s`, then id."""
        ...

    async def num_conversations(self, tenant: str) -> int: ...

    async def update_conversation(self, conversation: Conversation) -> None:
        """Replace its metadata; nothing happens if it is not there."""
        ...

    async def delete_conversation(self, conversation_id: str) -> bool:
        """Delete it with its items, but not the runs; false if it is not there."""
        ...

    async def append_items(self, conversation_id: str, items: Sequence[ConversationItem]) -> None:
        """Add items at the end.

        Raises:
            ValueError: the conversation is unknown, or an item's id is there already.
        """
        ...

    async def items(self, conversation_id: str, page: Page) -> list[ConversationItem]:
        """In the order in which they were added, or the other way round."""
        ...

    async def delete_item(
        self, conversation_id: str, item_id: str, followers: Sequence[ConversationItem] = ()
    ) -> bool:
        """Delete one item and replace those that come after it; false if it is not there."""
        ...
