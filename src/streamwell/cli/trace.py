"""`streamwell trace`: a picture of which request was in which step of the engine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from streamwell.core.errors import InvalidRequest

#: What a request does in a step: its sign, and its colour. Between steps of its own it is held up.
_KINDS = {"prefill": ("P", "#c44"), "decode": ("d", "#48a"), "waiting": (".", "#aaa")}
_HELD_UP = "-"
_CELL_PX, _CHAR_PX = 12, 6.5


def run(file: Path, output: Path | None, first: int, steps: int) -> None:
    """Print the picture as text, or write it as SVG.

    Raises:
        InvalidRequest: the file cannot be read or is no trace, or the output cannot be written.
    """
    try:
        with file.open(encoding="utf-8") as lines:
            rows = rows_of(map(json.loads, _whole(lines)), first, steps)
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error}") from None
    except (ValueError, LookupError, TypeError):
        raise InvalidRequest(f"{file} is not what --trace writes") from None
    if output is None:
        print(as_text(rows))
        return
    try:
        output.write_text(as_svg(rows), encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"--output cannot be written: {error}", "output") from None


def _whole(lines: Iterable[str]) -> Iterator[str]:
    """All but a last one without an end: it was cut, or is being written."""
    for number, line in enumerate(lines):
        if number == 0 or line.endswith("\n"):
            yield line


def rows_of(steps: Iterable[Mapping[str, Any]], first: int, count: int) -> dict[str, str]:
    """A sign per step for each request, in the order in which they were seen first."""
    rows: dict[str, str] = {}
    for step in steps:
        place = step["step"] - first
        if not 0 <= place < count:
            continue
        for kind, (sign, _) in _KINDS.items():
            for request_id in step[kind]:
                row = rows.get(request_id, " " * place)
                rows[request_id] = row.ljust(place, _HELD_UP) + sign
    return rows


def as_text(rows: Mapping[str, str]) -> str:
    """A line per request."""
    width = max(map(len, rows), default=0)
    lines = [f"{request_id:{width}}  {row}" for request_id, row in rows.items()]
    return "\n".join([*lines, "", "P prefill   d decode   . waiting   - held up"])


def as_svg(rows: Mapping[str, str]) -> str:
    """A row of coloured cells per request."""
    colours = dict(_KINDS.values())
    left = 2 * _CELL_PX + round(_CHAR_PX * max(map(len, rows), default=0))
    legend_px = 80 * len(_KINDS)
    width = left + max(legend_px, _CELL_PX * max(map(len, rows.values()), default=0))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
        f'height="{_CELL_PX * (len(rows) + 2)}" font-family="monospace" font-size="10">'
    ]
    for index, (request_id, row) in enumerate(rows.items()):
        top = _CELL_PX * index
        parts.append(f'<text x="2" y="{top + 10}">{escape(request_id)}</text>')
        parts += [
            f'<rect x="{left + _CELL_PX * place}" y="{top}" width="{_CELL_PX - 1}" '
            f'height="{_CELL_PX - 1}" fill="{colours[sign]}"/>'
            for place, sign in enumerate(row)
            if sign in colours
        ]
    x = left
    for name, (_, colour) in _KINDS.items():
        y = _CELL_PX * len(rows) + 20
        parts.append(f'<text x="{x}" y="{y}" fill="{colour}">■ {name}</text>')
        x += 80
    return "\n".join([*parts, "</svg>", ""])
