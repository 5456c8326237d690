"""Ids: what those of stored things look like, and those of calls."""

from __future__ import annotations

import hashlib
import re
import secrets
import time

_ID = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)


def call_id(run_id: str, choice: int, number: int) -> str:
    """The id of a call of a tool: the same whenever it is shown, by whichever server."""
    digest = hashlib.sha256(f"{run_id}/{choice}/{number}".encode()).hexdigest()
    return f"call_{digest[:24]}"


def id_by_time(prefix: str) -> str:
    """A new id; ids sort by the time at which they were made, to the millisecond."""
    return f"{prefix}{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


def is_id(text: str) -> bool:
    """It may be the id of something stored; no database is asked for what cannot be."""
    return _ID.fullmatch(text) is not None
