"""Alembic runs this file; it lends Alembic the connection and transaction of the caller."""

from __future__ import annotations

from alembic import context

from streamwell.store.schema import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    # SQLite can alter few things in place; batches rebuild the table instead.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
