"""What is old, or too much, goes: runs are deleted in batches, and commits get turns in between."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import ColumnElement, Connection, delete, false, func, or_, select, true

from streamwell.store.database import SqlDatabase
from streamwell.store.leases import belongs_to, gone_leases, is_of_others
from streamwell.store.schema import RUNS

#: Runs deleted per transaction, so that a commit never waits long behind a deletion.
DELETE_BATCH_SIZE = 8
#: What one server deletes of what is too much before it looks again how much that is.
_SHARE = 4

_NUM_BYTES = func.length(RUNS.c.spec) + func.coalesce(RUNS.c.num_event_bytes, 0)
_TOTAL_BYTES = select(func.coalesce(func.sum(_NUM_BYTES), 0))
_FIRST_ENDED = (
    select(RUNS.c.id, _NUM_BYTES)
    .where(RUNS.c.ended_s.is_not(None))
    .order_by(RUNS.c.ended_s, RUNS.c.id)
    .limit(DELETE_BATCH_SIZE)
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
            return _delete_batch(connection, *is_orphan, belongs_to(gone)) if gone else 0

        def delete_aged(age: ColumnElement[bool]) -> Callable[[Connection], int]:
            return lambda connection: _delete_batch(connection, age)

        num_deleted = 0
        for age in ages:  # one by one, each along its index
            num_deleted += await self._repeat(delete_aged(age))
        return num_deleted + await self._repeat(delete_orphans)

    async def delete_oldest(self, *, max_bytes: int) -> int:
        num_deleted = 0
        while (excess := await self._total_bytes() - max_bytes) > 0:
            # others may be at it, too: together we must not delete more than is too much
            deleted = await self._delete_first(excess / _SHARE)
            if not deleted:
                break
            num_deleted += deleted
        return num_deleted

    async def _total_bytes(self) -> int:
        (total,) = await self._read(lambda row: int(row[0]), _TOTAL_BYTES)
        return total

    async def _delete_first(self, left: float) -> int:
        """Delete the runs that ended first, of so many bytes together; how many."""

        def delete_first(connection: Connection) -> int:
            nonlocal left
            ids, rest = [], left
            for run_id, num_bytes in connection.execute(_FIRST_ENDED):
                if rest > 0:
                    ids.append(run_id)
                    rest -= num_bytes
            num_deleted = _delete_batch(connection, RUNS.c.id.in_(ids)) if ids else 0
            left = rest
            return num_deleted

        return await self._repeat(delete_first)

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


def _delete_batch(connection: Connection, *conditions: ColumnElement[bool]) -> int:
    ids = select(RUNS.c.id).where(*conditions).limit(DELETE_BATCH_SIZE)
    # The events go with their runs: their foreign key cascades.
    return connection.execute(delete(RUNS).where(RUNS.c.id.in_(ids))).rowcount
