"""What finds old runs that nobody has said how long to keep, among many that are kept."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    is_unsaid = sa.column("stored", sa.Boolean).is_(None)
    op.create_index(
        "runs_unsaid",
        "runs",
        ["ended_s"],
        sqlite_where=is_unsaid,
        postgresql_where=is_unsaid,
    )
