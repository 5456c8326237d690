"""Ids: what those of stored things look like, and those of calls."""

from __future__ import annotations

import hashlib
import re

_PREFIX = re.compile(r"^[a-z]+[-_]")
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)


def call_id(run_id: str, choice: int, number: int) -> str:
    """The id of a call of a tool: the same whenever it is shown, by whichever server."""
    digest = hashlib.sha256(f"{run_id}/{choice}/{number}".encode()).hexdigest()
    return f"call_{digest[:24]}"


def message_id(run_id: str) -> str:
    """The id of a run's answer, as of a message; what it answers has this with a number."""
    return f"msg_{_PREFIX.sub('', run_id)}"


def is_id(text: str) -> bool:
    """It may be the id of something stored; no database is asked for what cannot be."""
    return _ID.fullmatch(text) is not None
