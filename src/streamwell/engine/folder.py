"""Reads the small files of a model folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

#: What a folder that is damaged, or says things of wrong types, does to code that trusts it.
BROKEN = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SafetensorError,
    TypeError,
    ValueError,
)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; `None` if there is no such file or no such object in it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
