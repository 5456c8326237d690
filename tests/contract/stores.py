"""Stores of every kind to hold against the contract, and the values that are put into them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from postgres import Cluster

from streamwell.core.conversation import Conversation, ConversationItem
from streamwell.core.ports import Store
from streamwell.core.types import (
    EventKind,
    Message,
    RunEvent,
    RunKind,
    RunSpec,
    RunTerms,
    SamplingParams,
    Usage,
)
from streamwell.store.memory import MemoryStore
from streamwell.store.memory_database import MemoryDatabase
from streamwell.store.postgres import PostgresStore
from streamwell.store.sqlite import SqliteStore

T = TypeVar("T")


class Run(Protocol):
    """Runs a coroutine to its end on the test's one event loop."""

    def __call__(self, coroutine: Coroutine[Any, Any, T], /) -> T: ...


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass(frozen=True)
class Site:
    """A place where several stores share one database."""

    #: A store that has not been opened.
    store: Callable[[], Store]
    #: Ends the proof of life of an open store, as if its process had died.
    bereave: Callable[[Any], None]
    clock: Clock


def memory_site() -> Site:
    clock, database = Clock(), MemoryDatabase()
    return Site(
        store=lambda: MemoryStore(database, clock=clock),
        bereave=lambda store: database.end_lease(store._lease_id),
        clock=clock,
    )


def sqlite_site(path: Path) -> Site:
    clock = Clock()
    return Site(
        store=lambda: SqliteStore(path, clock=clock),
        bereave=lambda store: store._proof.end(None),
        clock=clock,
    )


def postgres_site(cluster: Cluster, url: str) -> Site:
    clock = Clock()
    return Site(
        store=lambda: PostgresStore(url, clock=clock),
        bereave=lambda store: cluster.end_session_of_lease(url, store._lease_id),
        clock=clock,
    )


def a_run(run_id: str, created_s: int = 1_000, model: str = "brooklet", **terms: object) -> RunSpec:
    return RunSpec(
        run_id=run_id,
        kind=RunKind.CHAT,
        tenant="tenant-1",
        model=model,
        created_s=created_s,
        prompts=((1, 2, 3), (4,)),
        num_choices=2,
        sampling=SamplingParams(max_tokens=16, seed=2**64 - 1, logit_bias=((7, -1.5),)),
        stop=("\n\n",),
        terms=RunTerms(**terms),
    )


def a_delta(run_id: str, seq: int) -> RunEvent:
    return RunEvent(
        run_id=run_id, seq=seq, kind=EventKind.DELTA, token_ids=(seq, 151_643), text=f" word{seq}"
    )


def an_end(run_id: str, seq: int) -> RunEvent:
    return RunEvent(run_id=run_id, seq=seq, kind=EventKind.END, usage=Usage(3, seq))


def a_conversation(conversation_id: str, created_s: int = 1_000) -> Conversation:
    return Conversation(
        conversation_id=conversation_id,
        tenant="tenant-1",
        created_s=created_s,
        metadata=(("topic", "rivers"),),
    )


def an_item(item_id: str) -> ConversationItem:
    return ConversationItem(item_id=item_id, message=Message("user", f"word {item_id}"))


def ids(specs: list[RunSpec]) -> list[str]:
    return [spec.run_id for spec in specs]


async def adopted(site: Site, *models: str) -> list[RunSpec]:
    """What a new store of this site adopts; it is closed then, and drives nothing."""
    heir = site.store()
    await heir.open()
    specs = await heir.adopt(models or ("brooklet",))
    await heir.close()
    return specs


async def is_accepted(store: Store, runs: list[RunSpec], events: list[RunEvent]) -> bool:
    try:
        await store.commit(runs, events)
    except ValueError:
        return False
    return True
