"""`MemoryStore`: the whole `Store` contract in dictionaries, for tests and throw-away servers."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from streamwell.core.conversation import NewItems, Page
from streamwell.core.errors import LeaseLost
from streamwell.core.types import EventKind, RunEvent, RunKind, RunSpec
from streamwell.store.memory_conversations import MemoryConversations, new_items
from streamwell.store.memory_database import NO_LEASE, MemoryDatabase, StoredRun
from streamwell.store.paging import page_of


class MemoryStore(MemoryConversations):
    """A `Store` that forgets all when the process ends; closing keeps what it holds.

    Stores that are given the same `database` share it, like servers.
    """

    is_durable = False

    def __init__(
        self, database: MemoryDatabase | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database or MemoryDatabase()
        self._clock = clock
        self._lease_id: int | None = None

    async def open(self) -> None:
        """Allow the other methods, and take a lease; idempotent."""
        if self._lease_id is None:
            self._lease_id = self._database.take_lease()

    async def close(self) -> None:
        """Refuse the other methods from now on, and let go of the lease; idempotent."""
        if self._lease_id is not None:
            self._database.end_lease(self._lease_id)
            self._lease_id = None

    async def check_writable(self) -> None:
        self._own_lease()

    async def commit(
        self,
        runs: Sequence[RunSpec],
        events: Sequence[RunEvent],
        items: Sequence[NewItems] = (),
    ) -> None:
        lease_id = self._own_lease()
        self._check_new(runs, events)
        places = [(self._stored(conversation_id), new) for conversation_id, new in items]
        added = [(place.items, new_items(place, new)) for place, new in places if place]
        stored = self._database.runs
        for spec in runs:
            stored[spec.run_id] = StoredRun(spec, lease_id)
        for event in events:
            stored[event.run_id].events[event.seq] = event
            if event.kind is EventKind.END:
                stored[event.run_id].ended_s = self._clock()
        for known, new in added:
            known.update(new)

    async def adopt(self, models: Collection[str], run_id: str = "") -> list[RunSpec]:
        lease_id = self._own_lease()
        adopted = [
            run
            for run in self._database.runs.values()
            if (run.spec.model in models or run.spec.run_id == run_id) and self._is_orphan(run)
        ]
        for run in adopted:
            self._database.revoked_ids.add(run.lease_id)
            run.lease_id = lease_id
        return sorted((run.spec for run in adopted), key=_age)

    async def release(self, run_id: str) -> None:
        lease_id = self._own_lease()
        stored = self._database.runs.get(run_id)
        if stored is not None and stored.lease_id == lease_id:
            stored.lease_id = NO_LEASE

    async def run(self, run_id: str) -> RunSpec | None:
        self._check_open()
        stored = self._database.runs.get(run_id)
        return stored.spec if stored else None

    async def run_of_key(self, tenant: str, idempotency_key: str) -> RunSpec | None:
        named = [
            spec
            for spec in self._specs(tenant)
            if idempotency_key and spec.terms.idempotency_key == idempotency_key
        ]
        return max(named, key=_age, default=None)

    async def runs(
        self, tenant: str, kind: RunKind, page: Page, *, model: str = ""
    ) -> list[RunSpec]:
        own = self._specs(tenant)
        listed = [
            spec
            for spec in own
            if spec.terms.store is True and spec.kind is kind and model in ("", spec.model)
        ]
        after = next((spec for spec in own if spec.run_id == page.after), None)
        return page_of(listed, page, _age, after)

    async def update_run(self, spec: RunSpec) -> None:
        self._check_open()
        if stored := self._database.runs.get(spec.run_id):
            stored.spec = spec

    async def delete_run(self, run_id: str) -> bool:
        self._check_open()
        return self._database.runs.pop(run_id, None) is not None

    async def events(self, run_id: str, after_seq: int = -1) -> list[RunEvent]:
        self._check_open()
        stored = self._database.runs.get(run_id)
        return [event for event in stored.in_order() if event.seq > after_seq] if stored else []

    async def fold(self, *, ended_before_s: float) -> int:
        self._check_open()
        num_folded = 0
        for run in list(self._database.runs.values()):
            if run.ended_s is not None and run.ended_s < ended_before_s and run.folded is None:
                run.fold()
                num_folded += 1
                await asyncio.sleep(0)  # streams need not wait for all of them
        return num_folded

    async def delete_old(
        self,
        *,
        ended_before_s: float,
        unstored_before_s: float,
        stored_before_s: float,
    ) -> int:
        before_s = {
            None: ended_before_s,
            False: max(ended_before_s, unstored_before_s),
            True: stored_before_s,
        }

        def is_old(run: StoredRun) -> bool:
            if self._is_orphan(run):  # somebody may still go on with it, whoever may resume it then
                is_kept = run.spec.terms.store is True
                return run.spec.created_s < (stored_before_s if is_kept else ended_before_s)
            return run.ended_s is not None and run.ended_s < before_s[run.spec.terms.store]

        self._check_open()
        return self._delete([run for run in self._database.runs.values() if is_old(run)])

    async def delete_oldest(self, *, max_bytes: int) -> int:
        self._check_open()
        excess = sum(run.num_bytes for run in self._database.runs.values()) - max_bytes
        ended = [run for run in self._database.runs.values() if run.ended_s is not None]
        oldest = []
        for run in sorted(ended, key=lambda run: (run.ended_s, run.spec.run_id)):
            if excess > 0:
                oldest.append(run)
                excess -= run.num_bytes
        return self._delete(oldest)

    def _own_lease(self) -> int:
        self._check_open()
        if self._lease_id is None or self._lease_id in self._database.revoked_ids:
            raise LeaseLost
        return self._lease_id

    def _specs(self, tenant: str) -> list[RunSpec]:
        self._check_open()
        specs = (run.spec for run in self._database.runs.values())
        return [spec for spec in specs if spec.tenant == tenant]

    def _is_orphan(self, run: StoredRun) -> bool:
        is_own = run.lease_id == self._lease_id
        return run.ended_s is None and not is_own and not self._database.is_alive(run.lease_id)

    def _delete(self, runs: Collection[StoredRun]) -> int:
        for run in runs:
            del self._database.runs[run.spec.run_id]
        return len(runs)

    def _check_new(self, runs: Sequence[RunSpec], events: Sequence[RunEvent]) -> None:
        stored = self._database.runs
        id_counts = Counter(spec.run_id for spec in runs)
        for run_id, count in id_counts.items():
            if count > 1 or run_id in stored:
                raise ValueError(f"Run {run_id} is there already.")
        seq_counts = Counter((event.run_id, event.seq) for event in events)
        for (run_id, seq), count in seq_counts.items():
            if run_id not in stored and run_id not in id_counts:
                raise ValueError(f"Event {seq} belongs to run {run_id}, which is unknown.")
            if count > 1 or (run_id in stored and seq in stored[run_id].events):
                raise ValueError(f"Event {seq} of run {run_id} is there already.")


def _age(spec: RunSpec) -> tuple[int, str]:
    return spec.created_s, spec.run_id
