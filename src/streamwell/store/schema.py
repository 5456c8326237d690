"""The tables. No connection, no transaction and no row lives here.

Whoever changes a table writes a migration.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    false,
    true,
)

METADATA = MetaData()

#: Ids are sorted by, and their order is that of their characters' codes in every database.
_ID = Text().with_variant(Text(collation="C"), "postgresql")

LEASES = Table(
    "leases",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("created_s", BigInteger, nullable=False),
    #: Somebody has adopted runs of this lease; its holder may write no more.
    Column("revoked", Boolean, nullable=False),
    # An id never comes again: its lock's name must not belong to two leases.
    sqlite_autoincrement=True,
)

RUNS = Table(
    "runs",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("created_s", BigInteger, nullable=False),
    Column("ended", Boolean, nullable=False),
    #: The whole `RunSpec` as MessagePack; other columns repeat what is searched for.
    Column("spec", LargeBinary, nullable=False),
    #: Null: older than leases, and so of nobody who lives.
    Column("lease_id", Integer),
    #: Null while the run has no end, as is the next.
    Column("ended_s", Double),
    Column("num_event_bytes", BigInteger),
    #: `RunTerms.store`.
    Column("stored", Boolean),
    #: Null: none.
    Column("idempotency_key", Text),
    #: Its events are a single row. Null: they are not.
    Column("folded", Boolean),
    # The runs that have not ended.
    Index("runs_by_age", "ended", "created_s", "id"),
    Index("runs_by_end", "ended_s", "id"),
)
Index(
    "runs_unstored",
    RUNS.c.ended_s,
    sqlite_where=RUNS.c.stored == false(),
    postgresql_where=RUNS.c.stored == false(),
)
Index(
    "runs_unsaid",
    RUNS.c.ended_s,
    sqlite_where=RUNS.c.stored.is_(None),
    postgresql_where=RUNS.c.stored.is_(None),
)
Index(
    "runs_listed",
    RUNS.c.tenant,
    RUNS.c.kind,
    RUNS.c.created_s,
    RUNS.c.id,
    sqlite_where=RUNS.c.stored == true(),
    postgresql_where=RUNS.c.stored == true(),
)
Index(
    "runs_by_key",
    RUNS.c.tenant,
    RUNS.c.idempotency_key,
    sqlite_where=RUNS.c.idempotency_key.is_not(None),
    postgresql_where=RUNS.c.idempotency_key.is_not(None),
)

Index(
    "runs_unfolded",
    RUNS.c.ended_s,
    sqlite_where=RUNS.c.folded.is_(None),
    postgresql_where=RUNS.c.folded.is_(None),
)

#: One row per event; of a folded run one for all of them, in the place of the last.
RUN_EVENTS = Table(
    "run_events",
    METADATA,
    Column("run_id", _ID, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    #: A code of `rows`.
    Column("kind", SmallInteger, nullable=False),
    Column("choice", Integer, nullable=False),
    #: Little-endian uint32s.
    Column("token_ids", LargeBinary, nullable=False),
    # UTF-8 in a blob, because PostgreSQL's text cannot hold U+0000, and models do write it.
    Column("text", LargeBinary, nullable=False),
    Column("finish_reason", Text),
    #: MessagePack of `(usage, error, error_code, parts)`; null when all are.
    Column("outcome", LargeBinary),
    sqlite_with_rowid=False,
)

CONVERSATIONS = Table(
    "conversations",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("created_s", BigInteger, nullable=False),
    #: MessagePack of pairs.
    Column("metadata", LargeBinary, nullable=False),
    Index("conversations_listed", "tenant", "created_s", "id"),
)

CONVERSATION_ITEMS = Table(
    "conversation_items",
    METADATA,
    Column(
        "conversation_id", _ID, ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True
    ),
    #: Grows from item to item; deleted ones leave holes.
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("id", _ID, nullable=False),
    #: The `ConversationItem` as MessagePack.
    Column("item", LargeBinary, nullable=False),
    Index("conversation_items_by_id", "conversation_id", "id", unique=True),
)
