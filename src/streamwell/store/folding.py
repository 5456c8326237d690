"""Ended runs are folded: their events become one small row, and who reads them does not notice."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from streamwell.store.database import SqlDatabase
from streamwell.store.rows import fold_rows
from streamwell.store.schema import RUN_EVENTS, RUNS

#: Runs folded per transaction, so that a commit never waits long behind it.
FOLD_BATCH_SIZE = 8

_IS_UNFOLDED = RUNS.c.folded.is_(None)
_MARK = (
    update(RUNS)
    .where(RUNS.c.id == bindparam("run_id"))
    .values(folded=True, num_event_bytes=bindparam("num_bytes"))
)


class SqlFolding(SqlDatabase):
    """The part of the `Store` contract that folds runs."""

    async def fold(self, *, ended_before_s: float) -> int:
        num_folded = 0
        while True:
            # What takes long is done beside the writer: the events of ended runs do not change.
            rows = await self._look(partial(_fold_some, ended_before_s))
            num_replaced = await self._write(partial(_replace, rows)) if rows else 0
            if not num_replaced:
                return num_folded
            num_folded += num_replaced


def _fold_some(ended_before_s: float, connection: Connection) -> list[dict[str, Any]]:
    """For each of the runs that ended first, the row that can take the place of all of its rows."""
    has_ended = RUNS.c.ended_s < ended_before_s
    first = select(RUNS.c.id).where(_IS_UNFOLDED, has_ended).order_by(RUNS.c.ended_s)
    columns = RUN_EVENTS.c
    is_of_first = columns.run_id.in_(first.limit(FOLD_BATCH_SIZE))
    rows = connection.execute(
        select(RUN_EVENTS).where(is_of_first).order_by(columns.run_id, columns.seq)
    )
    return [fold_rows([*of_run]) for _, of_run in groupby(rows, key=itemgetter(0))]


def _replace(rows: list[dict[str, Any]], connection: Connection) -> int:
    """Of how many runs; some may have been deleted, or folded by another server."""
    run_ids = [row["run_id"] for row in rows]
    is_left = (RUNS.c.id.in_(run_ids), _IS_UNFOLDED)
    left = {*connection.scalars(select(RUNS.c.id).where(*is_left).with_for_update())}
    new = [row for row in rows if row["run_id"] in left]
    if new:
        connection.execute(delete(RUN_EVENTS).where(RUN_EVENTS.c.run_id.in_(left)))
        connection.execute(insert(RUN_EVENTS), new)
        marks = [{"run_id": row["run_id"], "num_bytes": len(row["text"])} for row in new]
        connection.execute(_MARK, marks)
    return len(new)
