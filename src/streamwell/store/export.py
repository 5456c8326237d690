"""Runs as lines of JSON, for other programs and for safekeeping."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from streamwell.core.errors import RunNotFound
from streamwell.store.sql import SqlStore

_NUM_IDS = 100


async def export_runs(store: SqlStore) -> AsyncIterator[bytes]:
    """Each run with its events as one line, by id; runs that come meanwhile may be missing."""
    after = ""
    while run_ids := await store.run_ids(after, _NUM_IDS):
        for run_id in run_ids:
            line = await _line(store, run_id)
            if line is not None:  # it may have been deleted meanwhile
                yield line
        after = run_ids[-1]


async def export_run(store: SqlStore, run_id: str) -> bytes:
    """One run with its events as a line.

    Raises:
        RunNotFound: there is none of this id.
    """
    line = await _line(store, run_id)
    if line is None:
        raise RunNotFound
    return line


async def _line(store: SqlStore, run_id: str) -> bytes | None:
    spec = await store.run(run_id)
    if spec is None:
        return None
    return msgspec.json.encode({"run": spec, "events": await store.events(run_id)}) + b"\n"
