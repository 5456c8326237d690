"""`MemoryStore`: the whole `Store` contract in dictionaries, for tests and throw-away servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from streamwell.core.errors import StoreFailed
from streamwell.core.types import EventKind, RunEvent, RunSpec


class MemoryStore:
    """A `Store` that forgets all when the process ends; closing keeps what it holds."""

    def __init__(self) -> None:
        self._is_open = False
        self._specs: dict[str, RunSpec] = {}
        self._ended_ids: set[str] = set()
        #: Events by run and `seq`; every known run has an entry.
        self._events: dict[str, dict[int, RunEvent]] = {}

    async def open(self) -> None:
        """Allow the other methods; idempotent."""
        self._is_open = True

    async def close(self) -> None:
        """Refuse the other methods from now on; idempotent."""
        self._is_open = False

    async def commit(self, runs: Sequence[RunSpec], events: Sequence[RunEvent]) -> None:
        """Write new runs and new events; all of it is kept, or nothing.

        Raises:
            ValueError: a run id or an event's `(run_id, seq)` is there already or given twice, or
                an event's run is unknown.
            StoreFailed: the store is not open.
        """
        self._check_open()
        self._check_new(runs, events)
        for spec in runs:
            self._specs[spec.run_id] = spec
            self._events[spec.run_id] = {}
        for event in events:
            self._events[event.run_id][event.seq] = event
            if event.kind is EventKind.END:
                self._ended_ids.add(event.run_id)

    async def run(self, run_id: str) -> RunSpec | None:
        """The run with this id; `StoreFailed` when not open."""
        self._check_open()
        return self._specs.get(run_id)

    async def events(self, run_id: str, after_seq: int = -1) -> list[RunEvent]:
        """The events of a run with `seq > after_seq`, in order; `StoreFailed` when not open."""
        self._check_open()
        events = self._events.get(run_id, {})
        return [events[seq] for seq in sorted(events) if seq > after_seq]

    async def unended_runs(self) -> list[RunSpec]:
        """Runs without an `END`, by `created_s`, then id; `StoreFailed` when not open."""
        self._check_open()
        unended = [spec for spec in self._specs.values() if spec.run_id not in self._ended_ids]
        return sorted(unended, key=lambda spec: (spec.created_s, spec.run_id))

    async def delete_ended_before(self, created_s: int) -> int:
        """Delete ended runs created before this time; `StoreFailed` when not open."""
        self._check_open()
        old_ids = [id_ for id_ in self._ended_ids if self._specs[id_].created_s < created_s]
        for run_id in old_ids:
            del self._specs[run_id]
            del self._events[run_id]
            self._ended_ids.remove(run_id)
        return len(old_ids)

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreFailed("The store is not open.")

    def _check_new(self, runs: Sequence[RunSpec], events: Sequence[RunEvent]) -> None:
        id_counts = Counter(spec.run_id for spec in runs)
        for run_id, count in id_counts.items():
            if count > 1 or run_id in self._specs:
                raise ValueError(f"Run {run_id} is there already.")
        seq_counts = Counter((event.run_id, event.seq) for event in events)
        for (run_id, seq), count in seq_counts.items():
            if run_id not in self._specs and run_id not in id_counts:
                raise ValueError(f"Event {seq} belongs to run {run_id}, which is unknown.")
            if count > 1 or seq in self._events.get(run_id, {}):
                raise ValueError(f"Event {seq} of run {run_id} is there already.")
