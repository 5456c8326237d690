"""Leases: who may append to which runs, and how a run passes from a dead server to a living one.

A lease lives as long as its proof of life, which ends with its process (docs/decisions/0015). All
of this happens inside a transaction of the caller that shuts out other writers where the database
has but one, and where it has not, the rows and proofs that it touches.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    bindparam,
    false,
    insert,
    or_,
    select,
    true,
    update,
)

from streamwell.core.types import RunSpec
from streamwell.store.rows import spec_from_row
from streamwell.store.schema import LEASES, RUNS


class Proof(Protocol):
    """Something that a process holds, that others can see, and that ends with the process."""

    def give(self, connection: Connection, lease_id: int) -> None:
        """Begin the proof of life of one's own lease."""
        ...

    def is_gone(self, connection: Connection, lease_id: int) -> bool:
        """Whether nobody gives proof for somebody else's lease."""
        ...

    def end(self, connection: Connection | None) -> None:
        """Give proof no longer; idempotent. The connection is the writer's, if it is alive."""
        ...


def take_lease(connection: Connection, proof: Proof, created_s: float) -> int:
    """A new lease, with proof of life."""
    row = insert(LEASES).values(created_s=int(created_s), revoked=False)
    (lease_id,) = connection.execute(row).inserted_primary_key or (0,)
    proof.give(connection, lease_id)
    return int(lease_id)


def adopt(
    connection: Connection, proof: Proof, lease_id: int, is_wanted: ColumnElement[bool]
) -> list[RunSpec]:
    """Give this lease the wanted runs that nobody drives; by `created_s`, then id."""
    is_foreign = (is_wanted, *is_of_others(lease_id))
    gone = gone_leases(connection, proof, select(RUNS.c.lease_id).where(*is_foreign).distinct())
    if not gone:
        return []
    # Before the runs are read: this waits for commits of these leases that are under way.
    connection.execute(update(LEASES).where(LEASES.c.id.in_(gone)).values(revoked=True))
    is_adopted = (*is_foreign, belongs_to(gone))
    oldest_first = select(RUNS.c.spec).where(*is_adopted).order_by(RUNS.c.created_s, RUNS.c.id)
    specs = [spec_from_row(row) for row in connection.execute(oldest_first.with_for_update())]
    # none that was released since: nobody would be told that it is ours
    adopted = update(RUNS).where(RUNS.c.id == bindparam("adopted")).values(lease_id=lease_id)
    if specs:
        connection.execute(adopted, [{"adopted": spec.run_id} for spec in specs])
    return specs


def gone_leases(connection: Connection, proof: Proof, candidates: Select[Any]) -> list[int | None]:
    """Of these leases those that are revoked or without proof of life; `None` is always gone."""
    ids: list[int | None] = list(connection.scalars(candidates))
    is_revoked = (LEASES.c.id.in_(ids), LEASES.c.revoked == true())
    revoked = set(connection.scalars(select(LEASES.c.id).where(*is_revoked)))
    return [id_ for id_ in ids if id_ is None or id_ in revoked or proof.is_gone(connection, id_)]


def belongs_to(lease_ids: Collection[int | None]) -> ColumnElement[bool]:
    """The condition that a run is under one of these leases; `None` is no lease."""
    known = RUNS.c.lease_id.in_([id_ for id_ in lease_ids if id_ is not None])
    return or_(known, RUNS.c.lease_id.is_(None)) if None in lease_ids else known


def is_of_others(lease_id: int) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """The conditions that a run has no end, and is not under this lease."""
    return RUNS.c.ended == false(), RUNS.c.lease_id.is_distinct_from(lease_id)
