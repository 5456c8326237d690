"""Brings a database to the schema of this Streamwell; the only place that knows Alembic.

Alembic is imported only to upgrade an older database, since its import costs more than all the
rest of opening a store.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    insert,
    inspect,
    select,
)

from streamwell.core.errors import StoreFailed
from streamwell.store.schema import METADATA

#: The revision that `METADATA` describes: the newest file in `migrations/versions`.
HEAD_REVISION = "0004"

_MIGRATIONS = Path(__file__).parent / "migrations"

_VERSION = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    # Alembic's own name, so that its tables and ours are the same.
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def migrate(connection: Connection) -> None:
    """Create the tables, or upgrade them, inside the caller's transaction; blocks.

    Raises:
        StoreFailed: the database is of a newer Streamwell, or of another program.
    """
    tables = inspect(connection).get_table_names()
    if not tables:
        _create(connection)
        return
    if _VERSION.name not in tables:
        raise StoreFailed(
            "The database belongs to another program: it has tables, but no revision."
        )
    revision = connection.scalar(select(_VERSION.c.version_num))
    if revision != HEAD_REVISION:
        upgrade(connection, revision)


def _create(connection: Connection) -> None:
    METADATA.create_all(connection, checkfirst=False)
    _VERSION.create(connection, checkfirst=False)
    connection.execute(insert(_VERSION).values(version_num=HEAD_REVISION))


def upgrade(connection: Connection, revision: str | None) -> None:
    """Run the migrations from `revision` (`None`: from the first) up to the head; blocks.

    Raises:
        StoreFailed: the revision is not one of ours.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    # The configuration is a ConfigParser, to which a percent sign means interpolation.
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision is not None and revision not in known:
        raise StoreFailed(
            f"The database has schema revision {revision}, which this Streamwell does not know "
            f"(its own is {HEAD_REVISION}): a newer Streamwell wrote it. Upgrade Streamwell."
        )
    command.upgrade(config, "head")
