"""Runs and their events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("created_s", sa.BigInteger, nullable=False),
        sa.Column("ended", sa.Boolean, nullable=False),
        sa.Column("spec", sa.LargeBinary, nullable=False),
    )
    op.create_index("runs_by_age", "runs", ["ended", "created_s", "id"])
    op.create_table(
        "run_events",
        sa.Column(
            "run_id", sa.Text, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.SmallInteger, nullable=False),
        sa.Column("choice", sa.Integer, nullable=False),
        sa.Column("token_ids", sa.LargeBinary, nullable=False),
        sa.Column("text", sa.LargeBinary, nullable=False),
        sa.Column("finish_reason", sa.Text),
        sa.Column("outcome", sa.LargeBinary),
        sqlite_with_rowid=False,
    )
