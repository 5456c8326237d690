"""Leases; what runs are listed, found and deleted by; conversations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

_RUNS = sa.table(
    "runs",
    sa.column("id", sa.Text),
    sa.column("created_s", sa.BigInteger),
    sa.column("ended", sa.Boolean),
    sa.column("ended_s", sa.Double),
    sa.column("num_event_bytes", sa.BigInteger),
    sa.column("stored", sa.Boolean),
    sa.column("idempotency_key", sa.Text),
)
_EVENTS = sa.table(
    "run_events",
    sa.column("run_id", sa.Text),
    sa.column("token_ids", sa.LargeBinary),
    sa.column("text", sa.LargeBinary),
    sa.column("outcome", sa.LargeBinary),
)


def upgrade() -> None:
    op.create_table(
        "leases",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("created_s", sa.BigInteger, nullable=False),
        sa.Column("revoked", sa.Boolean, nullable=False),
        sqlite_autoincrement=True,
    )
    _extend_runs()
    _index_runs()
    _create_conversations()


def _extend_runs() -> None:
    """New columns; runs that ended before count as ended when they were created."""
    op.add_column("runs", sa.Column("lease_id", sa.Integer))
    op.add_column("runs", sa.Column("ended_s", sa.Double))
    op.add_column("runs", sa.Column("num_event_bytes", sa.BigInteger))
    op.add_column("runs", sa.Column("stored", sa.Boolean))
    op.add_column("runs", sa.Column("idempotency_key", sa.Text))
    length = sa.func.length
    num_bytes = (
        sa.select(
            sa.func.sum(
                length(_EVENTS.c.token_ids)
                + length(_EVENTS.c.text)
                + sa.func.coalesce(length(_EVENTS.c.outcome), 0)
            )
        )
        .where(_EVENTS.c.run_id == _RUNS.c.id)
        .scalar_subquery()
    )
    op.execute(
        sa.update(_RUNS)
        .where(_RUNS.c.ended == sa.true())
        .values(ended_s=_RUNS.c.created_s, num_event_bytes=num_bytes)
    )
    if op.get_context().dialect.name == "postgresql":
        op.alter_column("runs", "id", type_=_ID)
        op.alter_column("run_events", "run_id", type_=_ID)


def _index_runs() -> None:
    is_false, is_true = _RUNS.c.stored == sa.false(), _RUNS.c.stored == sa.true()
    has_key = _RUNS.c.idempotency_key.is_not(None)
    op.create_index("runs_by_end", "runs", ["ended_s", "id"])
    op.create_index(
        "runs_unstored", "runs", ["ended_s"], sqlite_where=is_false, postgresql_where=is_false
    )
    op.create_index(
        "runs_listed",
        "runs",
        ["tenant", "kind", "created_s", "id"],
        sqlite_where=is_true,
        postgresql_where=is_true,
    )
    op.create_index(
        "runs_by_key",
        "runs",
        ["tenant", "idempotency_key"],
        sqlite_where=has_key,
        postgresql_where=has_key,
    )


def _create_conversations() -> None:
    op.create_table(
        "conversations",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("created_s", sa.BigInteger, nullable=False),
        sa.Column("metadata", sa.LargeBinary, nullable=False),
    )
    op.create_index("conversations_listed", "conversations", ["tenant", "created_s", "id"])
    op.create_table(
        "conversation_items",
        sa.Column(
            "conversation_id",
            _ID,
            sa.ForeignKey("conversations.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("item", sa.LargeBinary, nullable=False),
    )
    op.create_index(
        "conversation_items_by_id", "conversation_items", ["conversation_id", "id"], unique=True
    )
