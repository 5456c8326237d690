"""The tables, and how runs and events become rows and rows become values again.

No connection, no transaction and no dialect lives here. Whoever changes a table writes a migration.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
)

from streamwell.core.types import EventKind, FinishReason, RunEvent, RunSpec, Usage

METADATA = MetaData()

RUNS = Table(
    "runs",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("created_s", BigInteger, nullable=False),
    Column("ended", Boolean, nullable=False),
    #: The whole `RunSpec` as MessagePack; the columns above repeat what is searched for.
    Column("spec", LargeBinary, nullable=False),
    # One index for both questions: which runs have not ended, and which ended ones are old.
    Index("runs_by_age", "ended", "created_s", "id"),
)

RUN_EVENTS = Table(
    "run_events",
    METADATA,
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    #: A code of `_KIND_CODES`.
    Column("kind", SmallInteger, nullable=False),
    Column("choice", Integer, nullable=False),
    #: Little-endian uint32s.
    Column("token_ids", LargeBinary, nullable=False),
    # UTF-8 in a blob, because PostgreSQL's text cannot hold U+0000, and models do write it.
    Column("text", LargeBinary, nullable=False),
    Column("finish_reason", Text),
    #: MessagePack of `(usage, error, error_code)`; null when all are.
    Column("outcome", LargeBinary),
    sqlite_with_rowid=False,
)

# DELTA is 1, by far the most frequent kind, because SQLite stores 0 and 1 in no bytes at all.
_KIND_CODES = {EventKind.START: 0, EventKind.DELTA: 1, EventKind.FINISH: 2, EventKind.END: 3}
_KINDS = {code: kind for kind, code in _KIND_CODES.items()}

_spec_decoder = msgspec.msgpack.Decoder(RunSpec)
_outcome_decoder = msgspec.msgpack.Decoder(tuple[Usage | None, str | None, str | None])


def run_to_row(spec: RunSpec) -> dict[str, object]:
    """A row of `RUNS` for a run that has not ended."""
    return {
        "id": spec.run_id,
        "tenant": spec.tenant,
        "kind": spec.kind.value,
        "model": spec.model,
        "created_s": spec.created_s,
        "ended": False,
        "spec": msgspec.msgpack.encode(spec),
    }


def spec_from_row(row: Sequence[Any]) -> RunSpec:
    """The run behind a row that has the column `spec` alone."""
    return _spec_decoder.decode(row[0])


def event_to_row(event: RunEvent) -> tuple[object, ...]:
    """A row of `RUN_EVENTS`, in the order of its columns."""
    return (
        event.run_id,
        event.seq,
        _KIND_CODES[event.kind],
        event.index,
        _pack_ids(event.token_ids),
        event.text.encode(),
        event.finish_reason and event.finish_reason.value,
        _pack_outcome(event),
    )


def event_from_row(row: Sequence[Any]) -> RunEvent:
    """The event behind a whole row of `RUN_EVENTS`."""
    # Unpacked, because looking the columns up by name takes longer than all the rest.
    run_id, seq, kind, choice, token_ids, text, finish_reason, outcome = row
    usage, error, error_code = _outcome_decoder.decode(outcome) if outcome else (None,) * 3
    return RunEvent(
        run_id=run_id,
        seq=seq,
        kind=_KINDS[kind],
        index=choice,
        token_ids=_unpack_ids(token_ids),
        text=text.decode(),
        finish_reason=FinishReason(finish_reason) if finish_reason else None,
        usage=usage,
        error=error,
        error_code=error_code,
    )


def _pack_ids(token_ids: tuple[int, ...]) -> bytes:
    return struct.pack(f"<{len(token_ids)}I", *token_ids)


def _unpack_ids(packed: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(packed) // 4}I", packed)


def _pack_outcome(event: RunEvent) -> bytes | None:
    outcome = (event.usage, event.error, event.error_code)
    return None if outcome == (None, None, None) else msgspec.msgpack.encode(outcome)
