"""Ids of what is made here."""

from __future__ import annotations

import secrets
import time


def id_by_time(prefix: str) -> str:
    """A new id; ids sort by the time at which they were made, to the millisecond."""
    return f"{prefix}{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"
