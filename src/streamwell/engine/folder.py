"""Reads the small files of a model folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
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


def eos_token_ids(path: Path, model_config: Mapping[str, Any], vocab_size: int) -> frozenset[int]:
    """The ids that end an answer; those that the model cannot say are left out."""
    generation_config = read_json(path / "generation_config.json") or {}
    text_config = model_config.get("text_config") or model_config
    for source in (generation_config, model_config, text_config):
        if (ids := source.get("eos_token_id")) is not None:
            ids = ids if isinstance(ids, list) else [ids]
            return frozenset(i for i in ids if isinstance(i, int) and 0 <= i < vocab_size)
    return frozenset()
