"""The log of live runs: one group commit at a time, and readers wake only after it.

Everything that a reader sees is in the store already. While one commit is under way, what all
runs append gathers for the next, so an engine step costs one commit however many runs it served.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Collection, Sequence

import structlog

from streamwell.core.conversation import ConversationItem, Page
from streamwell.core.errors import (
    InvalidRequest,
    LeaseLost,
    RunElsewhere,
    ShuttingDown,
    StoreFailed,
)
from streamwell.core.ports import Store
from streamwell.core.types import EventKind, RunEvent, RunKind, RunSpec, end_of
from streamwell.service.group_commit import Batch, GroupCommit
from streamwell.service.live_run import LiveRun

log = structlog.get_logger()


class RunLog:
    """Writes and follows runs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._live: dict[str, LiveRun] = {}
        self._commits = GroupCommit(self._save)
        #: Nothing could be written when it was tried last.
        self.is_failing = False
        #: Runs of ours whose events could not be written; once the store works, they go on.
        self._broken: set[str] = set()
        self._num_renewals = 0
        self._renewing = asyncio.Lock()
        #: Told of each of the broken runs.
        self.on_broken: Callable[[str], None] = lambda run_id: None

    @property
    def is_durable(self) -> bool:
        return self._store.is_durable

    async def open(self) -> None:
        await self._store.open()
        self._commits.start()

    async def close(self) -> None:
        """Write what is pending, then close the store."""
        await self._commits.close()
        await self._store.close()

    def create(
        self, spec: RunSpec, events: list[RunEvent], items: Sequence[ConversationItem] = ()
    ) -> None:
        """Begin a run; its first events are shown once they are committed.

        `items` come to its conversation, in the same commit.
        """
        self._live[spec.run_id] = LiveRun(spec)
        self._commits.batch.runs.append(spec)
        if items:
            self._commits.batch.items.append((spec.terms.conversation_id, items))
        self.append(*events)

    def append(self, *events: RunEvent) -> None:
        """Queue events for the next commit; a broken log takes none: with a hole it would lie."""
        self._commits.batch.events += (event for event in events if event.run_id in self._live)
        self._commits.wake()

    async def adopt(
        self, models: Collection[str], busy_ids: Collection[str] = (), run_id: str = ""
    ) -> list[tuple[RunSpec, list[RunEvent]]]:
        """Take over the runs of these models, and this run; they are live from now on.

        Of those that nobody drives: runs that a server left behind, and our own whose log broke,
        but for those that somebody here has not let go of yet. Raises `StoreFailed`.
        """
        # whoever asked may leave meanwhile: what is ours in the store is to be known here
        await asyncio.shield(asyncio.create_task(self._adopt_from_store(models, run_id)))
        run_ids = self._broken - set(busy_ids)
        found = [(await self._store.run(id_), await self._store.events(id_)) for id_ in run_ids]
        adopted = [
            (spec, events)
            for spec, events in found
            if (spec and events and end_of(events) is None)
            and spec.run_id in self._broken  # the lease may have been lost meanwhile
        ]
        self._broken -= run_ids
        self._live |= {spec.run_id: LiveRun(spec, events) for spec, events in adopted}
        return sorted(adopted, key=lambda run: (run[0].created_s, run[0].run_id))

    async def suspend(self) -> None:
        """Send the readers of unended runs away; nothing is written, so that these can go on."""
        await self._commits.flush()  # the ends that are on their way shall be shown
        for live in self._live.values():
            live.fail(ShuttingDown())

    async def release(self, run_id: str) -> None:
        """Leave a run to whoever adopts it; nothing more may be appended. Raises `StoreFailed`."""
        await self._commits.flush()
        if (live := self._live.pop(run_id, None)) is not None:
            live.fail(RunElsewhere())
        try:
            await self._store.release(run_id)
        except StoreFailed as error:
            if not isinstance(error, LeaseLost):
                self._broken.add(run_id)  # ours still, as far as we know
            raise
        self._broken.discard(run_id)  # its last commit may have failed

    async def spec(self, run_id: str) -> RunSpec | None:
        live = self._live.get(run_id)
        return live.spec if live else await self._store.run(run_id)

    async def events(self, run_id: str) -> list[RunEvent]:
        """What has been committed of a run so far."""
        live = self._live.get(run_id)
        return list(live.events) if live else await self._store.events(run_id)

    async def delete(self, run_id: str) -> None:
        await self._store.delete_run(run_id)

    async def update(self, spec: RunSpec) -> None:
        """Replace the spec of a run."""
        if (live := self._live.get(spec.run_id)) is not None:
            live.spec = spec
            while not live.events:  # its first commit is under way, with the spec as it was
                await live.wait()
        await self._store.update_run(spec)

    async def wait_for_end(self, run_id: str) -> None:
        """Return once the end of a run is committed."""
        async for _ in self.follow(run_id):
            pass

    async def run_of_key(self, tenant: str, key: str) -> RunSpec | None:
        """The run of an Idempotency-Key; it need not be committed yet."""
        live = (live.spec for live in self._live.values())
        named = (
            spec for spec in live if (spec.tenant, spec.terms.idempotency_key) == (tenant, key)
        )
        return next(named, None) or await self._store.run_of_key(tenant, key)

    async def runs(
        self, tenant: str, kind: RunKind, page: Page, *, model: str = ""
    ) -> list[RunSpec]:
        """A tenant's runs that are to be listed."""
        return await self._store.runs(tenant, kind, page, model=model)

    async def check_seq(self, run_id: str, seq: int) -> None:
        """Check that the event has been shown, and its run can be read here; -1 is before all.

        Raises:
            InvalidRequest: there is no such event yet.
            RunElsewhere: the run has not ended, and is not live here.
        """
        live = self._live.get(run_id)
        events = live.events if live else await self._store.events(run_id, max(seq, 0) - 1)
        if live is None:
            events = events or await self._store.events(run_id)
            if end_of(events) is None:
                raise RunElsewhere
        if seq != -1 and not (events and events[0].seq <= seq <= events[-1].seq):
            raise InvalidRequest(f"the run has no event {seq} yet", "starting_after")

    def is_live(self, run_id: str) -> bool:
        """Its end is not committed yet."""
        return run_id in self._live

    async def is_end(self, run_id: str, seq: int) -> bool:
        """This is the last event of a run that has ended."""
        events = [] if run_id in self._live else await self._store.events(run_id, seq - 1)
        return len(events) == 1 and events[0].kind is EventKind.END and events[0].seq == seq

    async def follow(
        self, run_id: str, after_seq: int = -1
    ) -> AsyncGenerator[list[RunEvent], None]:
        """Yield what comes after `after_seq` as it is committed, to the `END`, late events at once.

        Raises:
            StoreFailed: the run's events could not be written.
            ShuttingDown: they go on when a server is up again.
        """
        live = self._live.get(run_id)
        if live is None:
            if batch := await self._ended_events(run_id, after_seq):
                yield batch
            return
        next_seq = after_seq + 1
        while True:
            if len(live.events) <= next_seq and not live.is_ended:
                await live.wait()
            batch = live.events[next_seq:]
            next_seq += len(batch)
            if batch:
                yield batch
            if live.is_ended and len(live.events) <= next_seq:
                return

    async def _ended_events(self, run_id: str, after_seq: int) -> list[RunEvent]:
        events = await self._store.events(run_id, after_seq)
        is_seen = not events and after_seq >= 0
        if not is_seen and end_of(events) is None:
            raise StoreFailed  # its log broke before the end
        return events

    async def _save(self, batch: Batch) -> None:
        """One commit; if it fails, everybody who waits for one of its runs is told."""
        lease, events = self._num_renewals, batch.events
        try:
            await self._store.commit(batch.runs, events, batch.items)
        except Exception as error:  # noqa: BLE001 - the rim of the task; a full disk is one line
            self.is_failing = isinstance(error, StoreFailed)
            self._break({event.run_id for event in events})
            log.warning("run log cannot be written", num_events=len(events), error=str(error))
            if isinstance(error, LeaseLost):
                await self._renew(lease)
        else:
            self.is_failing = False
            # those of others were given up meanwhile, with the lease
            self._publish([event for event in events if event.run_id in self._live])

    def _publish(self, events: list[RunEvent]) -> None:
        for event in events:
            self._live[event.run_id].publish(event)
            if event.kind is EventKind.END:
                del self._live[event.run_id]

    async def _adopt_from_store(self, models: Collection[str], run_id: str) -> None:
        """Take over runs, as broken ones; tells whether the store works. Raises `StoreFailed`."""
        lease = self._num_renewals
        try:
            if self.is_failing:
                await self._store.open()  # a lost lease may have left it closed
                await self._store.check_writable()
            specs = await self._store.adopt(models, run_id)
        except LeaseLost:
            await self._renew(lease)
            return
        except StoreFailed as error:
            if not self.is_failing:
                log.warning("run log cannot be used", error=str(error))
            self.is_failing = True
            raise
        self.is_failing = False
        self._broken |= {spec.run_id for spec in specs}

    async def _renew(self, lease: int) -> None:
        """Another server has what was live under this `lease`; what comes gets a new one, once."""
        async with self._renewing:
            if lease != self._num_renewals:
                return
            self._num_renewals += 1
            self._commits.forget_all()
            self._break(set(self._live))
            self._broken.clear()
            with contextlib.suppress(StoreFailed):
                await self._store.close()
                await self._store.open()

    def _break(self, run_ids: set[str]) -> None:
        """Give up runs whose events are not in the store, with what they appended meanwhile."""
        self._commits.forget(run_ids)
        for run_id in run_ids & self._live.keys():  # a lost lease may have ended some before
            self._live.pop(run_id).fail(StoreFailed())
            self._broken.add(run_id)
            self.on_broken(run_id)
