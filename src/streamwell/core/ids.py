"""What ids of stored things look like."""

from __future__ import annotations

import re

_ID = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)


def is_id(text: str) -> bool:
    """It may be the id of something stored; no database is asked for what cannot be."""
    return _ID.fullmatch(text) is not None
