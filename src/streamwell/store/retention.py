"""What is old, or too much, goes: runs are deleted in batches, and commits get turns in between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    delete,
    false,
    func,
    or_,
    select,
    true,
    tuple_,
)

from streamwell.store.database import SqlDatabase
from streamwell.store.leases import belongs_to, gone_leases, is_of_others
from streamwell.store.schema import RUNS

#: Runs deleted per transaction, so that a commit never waits long behind a deletion.
DELETE_BATCH_SIZE = 8

_NUM_BYTES = func.length(RUNS.c.spec) + func.coalesce(RUNS.c.num_event_bytes, 0)
_LIVE_BYTES = select(func.coalesce(func.sum(_NUM_BYTES), 0)).where(RUNS.c.ended_s.is_(None))
#: Each run that has ended, with the bytes of those that ended since and of itself.
_ENDED = (
    select(
        RUNS.c.ended_s,
        RUNS.c.id,
        func.sum(_NUM_BYTES)
        .over(order_by=(RUNS.c.ended_s.desc(), RUNS.c.id.desc()))
        .label("num_bytes"),
    )
    .where(RUNS.c.ended_s.is_not(None))
    .subquery()
)


class SqlRetention(SqlDatabase):
    """The part of the `Store` port that deletes runs by the heap."""

    async def delete_old(
        self,
        *,
        ended_before_s: float,
        unstored_before_s: float,
        stored_before_s: float,
    ) -> int:
        ages = _ages(RUNS.c.ended_s, ended_before_s, unstored_before_s, stored_before_s)
        # somebody may still go on with an orphan, whoever may resume it then
        orphan_ages = _ages(RUNS.c.created_s, ended_before_s, ended_before_s, stored_before_s)

        def delete_orphans(connection: Connection) -> int:
            is_orphan = (*is_of_others(self._lease_id or 0), or_(*orphan_ages))
            leases = select(RUNS.c.lease_id).where(*is_orphan).distinct()
            gone = gone_leases(connection, self._proof, leases)
            return _delete_batch(and_(*is_orphan, belongs_to(gone)), connection) if gone else 0

        num_deleted = 0
        for age in ages:  # one by one, each along its index
            num_deleted += await self._repeat(partial(_delete_batch, age))
        return num_deleted + await self._repeat(delete_orphans)

    async def delete_oldest(self, *, max_bytes: int) -> int:
        # The last one to go is the same for all who look, whatever of it others have deleted.
        last_to_go = (
            select(_ENDED.c.ended_s, _ENDED.c.id)
            .where(_ENDED.c.num_bytes + _LIVE_BYTES.scalar_subquery() > max_bytes)
            .order_by(_ENDED.c.ended_s.desc(), _ENDED.c.id.desc())
            .limit(1)
        )
        num_deleted = 0
        for ended_s, run_id in await self._read(tuple, last_to_go):
            is_too_much = tuple_(RUNS.c.ended_s, RUNS.c.id) <= (ended_s, run_id)
            num_deleted += await self._repeat(partial(_delete_batch, is_too_much))
        return num_deleted

    async def _repeat(self, delete_batch: Callable[[Connection], int]) -> int:
        num_deleted = 0
        while batch := await self._write(delete_batch):
            num_deleted += batch
        return num_deleted


def _ages(
    time: ColumnElement[int],
    ended_before_s: float,
    unstored_before_s: float,
    stored_before_s: float,
) -> tuple[ColumnElement[bool], ...]:
    """The three ways to be old; each has an index of such runs alone, or of all by their ends."""
    return (
        (time < ended_before_s) & RUNS.c.stored.is_(None),
        (time < max(ended_before_s, unstored_before_s)) & (RUNS.c.stored == false()),
        (time < stored_before_s) & (RUNS.c.stored == true()),
    )


def _delete_batch(condition: ColumnElement[bool], connection: Connection) -> int:
    ids = select(RUNS.c.id).where(condition).limit(DELETE_BATCH_SIZE)
    # The events go with their runs: their foreign key cascades.
    return connection.execute(delete(RUNS).where(RUNS.c.id.in_(ids))).rowcount
