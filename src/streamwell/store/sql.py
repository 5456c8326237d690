"""`SqlStore`: the `Store` contract in SQLAlchemy Core, whatever the database."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from operator import itemgetter

from sqlalchemy import (
    Connection,
    Engine,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    true,
    update,
)

from streamwell.core.conversation import NewItems, Page
from streamwell.core.types import EventKind, RunEvent, RunKind, RunSpec
from streamwell.store.database import driver_row
from streamwell.store.folding import SqlFolding
from streamwell.store.leases import Proof, adopt
from streamwell.store.paging import select_page
from streamwell.store.retention import SqlRetention
from streamwell.store.rows import (
    event_to_row,
    events_from_row,
    run_to_row,
    spec_from_row,
    spec_to_row,
)
from streamwell.store.schema import LEASES, RUN_EVENTS, RUNS
from streamwell.store.sql_conversations import SqlConversations, append_items

_INSERT_RUNS = insert(RUNS)
_EVENT_BYTES = (
    func.length(RUN_EVENTS.c.token_ids)
    + func.length(RUN_EVENTS.c.text)
    + func.coalesce(func.length(RUN_EVENTS.c.outcome), 0)
)
_END_RUN = (
    update(RUNS)
    .where(RUNS.c.id == bindparam("run_id"))
    .values(
        ended=True,
        ended_s=bindparam("now_s"),
        num_event_bytes=select(func.sum(_EVENT_BYTES))
        .where(RUN_EVENTS.c.run_id == RUNS.c.id)
        .scalar_subquery(),
    )
)


_SELECT_EVENT = select(RUN_EVENTS.c.seq).where(
    RUN_EVENTS.c.run_id == bindparam("run_id"), RUN_EVENTS.c.seq == bindparam("seq")
)


class SqlStore(SqlConversations, SqlFolding, SqlRetention):
    """A `Store` on a SQL database; see `SqlDatabase` for its threads and its engine."""

    def __init__(
        self,
        engine: Engine,
        proof: Proof,
        num_readers: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(engine, proof, num_readers, clock)
        self._insert_event = str(insert(RUN_EVENTS).compile(dialect=engine.dialect))
        self._select_event = str(_SELECT_EVENT.compile(dialect=engine.dialect))

    def _has_kept(self, connection: Connection, event: RunEvent) -> bool:
        place = (event.run_id, event.seq)
        if driver_row(connection, self._select_event, place) is not None:
            return True
        has_run = select(RUNS.c.id).where(RUNS.c.id == event.run_id)
        return event.kind is EventKind.END and connection.execute(has_run).first() is None

    def _insert_events(self, connection: Connection, rows: list[tuple[object, ...]]) -> None:
        # The hot statement goes to the driver as it is: its rows need none of SQLAlchemy's work on
        # parameters.
        connection.exec_driver_sql(self._insert_event, rows)

    async def check_writable(self) -> None:
        """Write its own lease again; raises `LeaseLost` or `StoreFailed` if that cannot be done."""

        def write(connection: Connection) -> None:
            is_own = LEASES.c.id == self._own_lease(connection)
            connection.execute(update(LEASES).where(is_own).values(revoked=False))

        await self._write(write)

    async def commit(
        self,
        runs: Sequence[RunSpec],
        events: Sequence[RunEvent],
        items: Sequence[NewItems] = (),
    ) -> None:
        """Commits are carried out in the order of the calls.

        Cancelling one that waits for its turn withdraws it; cancelling one that has begun ends the
        wait, not the transaction.
        """

        def write(connection: Connection) -> None:
            lease_id = self._own_lease(connection)
            # The order matters: an event's run must be there before it.
            if runs:
                connection.execute(_INSERT_RUNS, [run_to_row(spec, lease_id) for spec in runs])
            if events:
                self._insert_events(connection, [event_to_row(event) for event in events])
            if ended := [event.run_id for event in events if event.kind is EventKind.END]:
                now_s = self._clock()
                connection.execute(_END_RUN, [{"run_id": id_, "now_s": now_s} for id_ in ended])
            # In this order two servers cannot wait for each other's locks.
            for conversation_id, new in sorted(items, key=itemgetter(0)):
                append_items(connection, conversation_id, new)

        await self._write(write, events[-1] if events else None)

    async def adopt(self, models: Collection[str], run_id: str = "") -> list[RunSpec]:
        def write(connection: Connection) -> list[RunSpec]:
            is_wanted = or_(RUNS.c.model.in_(sorted(models)), RUNS.c.id == run_id)
            return adopt(connection, self._proof, self._own_lease(connection), is_wanted)

        return await self._write(write)

    async def release(self, run_id: str) -> None:
        def write(connection: Connection) -> None:
            is_own = (RUNS.c.id == run_id, RUNS.c.lease_id == self._own_lease(connection))
            connection.execute(update(RUNS).where(*is_own).values(lease_id=None))

        await self._write(write)

    async def run(self, run_id: str) -> RunSpec | None:
        specs = await self._read(spec_from_row, select(RUNS.c.spec).where(RUNS.c.id == run_id))
        return specs[0] if specs else None

    async def run_ids(self, after: str, limit: int) -> list[str]:
        """Ids of any runs that come after this one, in order."""
        ids = select(RUNS.c.id).where(RUNS.c.id > after).order_by(RUNS.c.id).limit(limit)
        return await self._read(lambda row: str(row[0]), ids)

    async def run_of_key(self, tenant: str, idempotency_key: str) -> RunSpec | None:
        statement = (
            select(RUNS.c.spec)
            .where(RUNS.c.tenant == tenant, RUNS.c.idempotency_key == idempotency_key)
            .order_by(RUNS.c.created_s.desc(), RUNS.c.id.desc())
            .limit(1)
        )
        specs = await self._read(spec_from_row, statement)
        return specs[0] if specs else None

    async def runs(
        self, tenant: str, kind: RunKind, page: Page, *, model: str = ""
    ) -> list[RunSpec]:
        columns = RUNS.c
        is_own = columns.tenant == tenant
        listed = select(columns.spec).where(
            is_own, columns.kind == kind.value, columns.stored == true()
        )
        if model:
            listed = listed.where(columns.model == model)
        after_s = select(columns.created_s).where(is_own, columns.id == page.after)
        statement = select_page(
            listed,
            page,
            (columns.created_s, columns.id),
            (after_s.scalar_subquery(), page.after),
        )
        return await self._read(spec_from_row, statement)

    async def update_run(self, spec: RunSpec) -> None:
        statement = update(RUNS).where(RUNS.c.id == spec.run_id).values(**spec_to_row(spec))
        await self._write(lambda connection: connection.execute(statement))

    async def delete_run(self, run_id: str) -> bool:
        """Delete a run, and its events by their foreign key; false if it is not there."""
        statement = delete(RUNS).where(RUNS.c.id == run_id)
        return await self._write(lambda connection: connection.execute(statement).rowcount > 0)

    async def events(self, run_id: str, after_seq: int = -1) -> list[RunEvent]:
        rows = await self._read(
            events_from_row,
            select(RUN_EVENTS)
            .where(RUN_EVENTS.c.run_id == run_id, RUN_EVENTS.c.seq > after_seq)
            .order_by(RUN_EVENTS.c.seq),
        )
        return [event for events in rows for event in events if event.seq > after_seq]
