"""Ended runs may be folded: a row for all of their events, and what finds those that are not."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("runs", sa.Column("folded", sa.Boolean))
    is_unfolded = sa.column("folded", sa.Boolean).is_(None)
    op.create_index(
        "runs_unfolded",
        "runs",
        ["ended_s"],
        sqlite_where=is_unfolded,
        postgresql_where=is_unfolded,
    )
