"""How runs, events and conversations become rows, and rows become values again.

No database lives here, so `MemoryStore` counts bytes by it as well.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from streamwell.core.conversation import Conversation, ConversationItem
from streamwell.core.messages import AnswerPart
from streamwell.core.types import EventKind, FinishReason, RunEvent, RunSpec, Usage

Row = Sequence[Any]

# DELTA is 1, by far the most frequent kind, because SQLite stores 0 and 1 in no bytes at all.
_KIND_CODES = {EventKind.START: 0, EventKind.DELTA: 1, EventKind.FINISH: 2, EventKind.END: 3}
_KINDS = {code: kind for kind, code in _KIND_CODES.items()}
#: The kind of the only row of a folded run.
_FOLDED = 4


class _Outcome(msgspec.Struct, array_like=True):
    """What few events have; a later field needs a default, for the rows that are there."""

    usage: Usage | None
    error: str | None
    error_code: str | None
    parts: tuple[AnswerPart, ...] | None = None


_NO_OUTCOME = _Outcome(None, None, None)
_spec_decoder = msgspec.msgpack.Decoder(RunSpec)
_outcome_decoder = msgspec.msgpack.Decoder(_Outcome)
#: Rows without the id of their run.
_fold_decoder = msgspec.msgpack.Decoder(
    list[tuple[int, int, int, bytes, bytes, str | None, bytes | None]]
)
_metadata_decoder = msgspec.msgpack.Decoder(tuple[tuple[str, str], ...])
_item_decoder = msgspec.msgpack.Decoder(ConversationItem)


def spec_to_row(spec: RunSpec) -> dict[str, object]:
    """The columns of `RUNS` that a spec decides."""
    return {
        "id": spec.run_id,
        "tenant": spec.tenant,
        "kind": spec.kind.value,
        "model": spec.model,
        "created_s": spec.created_s,
        "spec": msgspec.msgpack.encode(spec),
        "stored": spec.terms.store,
        "idempotency_key": spec.terms.idempotency_key or None,
    }


def run_to_row(spec: RunSpec, lease_id: int) -> dict[str, object]:
    """A row of `RUNS` for a run that has not ended."""
    return {**spec_to_row(spec), "ended": False, "lease_id": lease_id}


def spec_from_row(row: Row) -> RunSpec:
    """The run behind a row that has the column `spec` alone."""
    return _spec_decoder.decode(row[0])


def spec_bytes(spec: RunSpec) -> int:
    """What a run's spec takes in its row."""
    return len(msgspec.msgpack.encode(spec))


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


def fold_rows(rows: Sequence[Row]) -> dict[str, Any]:
    """All rows of a run, in order, as one: they stand in its text, as deflated MessagePack."""
    run_id, last_seq = rows[-1][:2]
    packed = zlib.compress(msgspec.msgpack.encode([tuple(row[1:]) for row in rows]))
    row = {"run_id": run_id, "seq": last_seq, "kind": _FOLDED, "text": packed}
    return {**row, "choice": 0, "token_ids": b""}


def events_from_row(row: Row) -> list[RunEvent]:
    """The event behind a whole row of `RUN_EVENTS`, or all events of a folded run."""
    run_id, _, kind, _, _, packed, *_ = row
    if kind != _FOLDED:
        return [_event_from_row(row)]
    folded = _fold_decoder.decode(zlib.decompress(packed))
    return [_event_from_row((run_id, *rest)) for rest in folded]


def _event_from_row(row: Row) -> RunEvent:
    # Unpacked, because looking the columns up by name takes longer than all the rest.
    run_id, seq, kind, choice, token_ids, text, finish_reason, outcome = row
    more = _outcome_decoder.decode(outcome) if outcome else _NO_OUTCOME
    return RunEvent(
        run_id=run_id,
        seq=seq,
        kind=_KINDS[kind],
        index=choice,
        token_ids=_unpack_ids(token_ids),
        text=text.decode(),
        finish_reason=FinishReason(finish_reason) if finish_reason else None,
        usage=more.usage,
        error=more.error,
        error_code=more.error_code,
        parts=more.parts,
    )


def event_bytes(event: RunEvent) -> int:
    """What an event's ids, text and outcome take in its row."""
    return 4 * len(event.token_ids) + len(event.text.encode()) + len(_pack_outcome(event) or b"")


def conversation_to_row(conversation: Conversation) -> dict[str, object]:
    """A row of `CONVERSATIONS`."""
    return {
        "id": conversation.conversation_id,
        "tenant": conversation.tenant,
        "created_s": conversation.created_s,
        "metadata": pack_metadata(conversation),
    }


def conversation_from_row(row: Row) -> Conversation:
    """The conversation behind a whole row of `CONVERSATIONS`."""
    conversation_id, tenant, created_s, metadata = row
    return Conversation(
        conversation_id=conversation_id,
        tenant=tenant,
        created_s=created_s,
        metadata=_metadata_decoder.decode(metadata),
    )


def pack_metadata(conversation: Conversation) -> bytes:
    """The column `metadata` of a conversation."""
    return msgspec.msgpack.encode(conversation.metadata)


def item_to_row(conversation_id: str, position: int, item: ConversationItem) -> dict[str, object]:
    """A row of `CONVERSATION_ITEMS`."""
    return {
        "conversation_id": conversation_id,
        "position": position,
        "id": item.item_id,
        "item": pack_item(item),
    }


def pack_item(item: ConversationItem) -> bytes:
    """What stands in the column `item`."""
    return msgspec.msgpack.encode(item)


def item_from_row(row: Row) -> ConversationItem:
    """The item behind a row that has the column `item` alone."""
    return _item_decoder.decode(row[0])


def _pack_ids(token_ids: tuple[int, ...]) -> bytes:
    return struct.pack(f"<{len(token_ids)}I", *token_ids)


def _unpack_ids(packed: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(packed) // 4}I", packed)


def _pack_outcome(event: RunEvent) -> bytes | None:
    outcome = _Outcome(event.usage, event.error, event.error_code, event.parts)
    return None if outcome == _NO_OUTCOME else msgspec.msgpack.encode(outcome)
