"""JSON that somebody else wrote: what of it is sound. Pure."""

from __future__ import annotations

import json
from typing import Any

#: Objects and lists within each other; no parameters of a function need as many.
MAX_JSON_DEPTH = 64


def parse_json(text: str) -> Any:  # noqa: ANN401 - JSON
    """The value of a text.

    Raises:
        ValueError: it is no JSON, or not sound, see `json_of`.
    """
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error}") from error
    json_of(value)
    return value


def json_of(value: Any) -> str:  # noqa: ANN401 - JSON
    """A value as text, in which letters beyond ASCII stand for themselves.

    Raises:
        ValueError: it is nested too deeply, or has a number or half a character that cannot be
            sent.
    """
    _check_depth(value)
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()
    return text


def _check_depth(value: Any) -> None:  # noqa: ANN401 - JSON
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        containers = [item for item in level if isinstance(item, dict | list)]
        if not containers:
            return
        level = [
            inner
            for item in containers
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    raise ValueError(f"it is nested more than {MAX_JSON_DEPTH} levels deep")
