"""Bars as an SVG file: for each case the contenders' medians, with a line from least to most."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.report import OURS, Row, number
from streamwell.cli.chart import document, text

#: Pixels: names to the left of the bars, values to the right of them.
NAME_WIDTH, BAR_WIDTH, VALUE_WIDTH = 200, 420, 80
ROW_HEIGHT, TITLE_HEIGHT, MARGIN = 20, 32, 12
OUR_COLOR, PEER_COLOR, LINE_COLOR = "#2563eb", "#94a3b8", "#0f172a"

#: A title, and the values of each contender.
Panel = tuple[str, Mapping[str, Sequence[float]]]


def panels(summary: Sequence[Row], headers: Mapping[str, str]) -> list[Panel]:
    """One panel per case that has one of the figures in `headers` (by key: what to call it)."""
    found: dict[str, dict[str, Sequence[float]]] = {}
    for row in summary:
        for key, header in headers.items():
            if key in row["cells"]:
                title = f"{row['case']}: {header}"
                found.setdefault(title, {})[row["contender"]] = row["cells"][key]
    return list(found.items())


def draw(drawn: Sequence[Panel]) -> str:
    """The panels below each other, each with a scale of its own."""
    parts, top = [], MARGIN
    for title, values in drawn:
        parts.append(text(MARGIN, top + TITLE_HEIGHT - 10, title, "font-weight='bold'"))
        top += TITLE_HEIGHT
        most = max((max(figures) for figures in values.values()), default=0.0) or 1.0
        for name, figures in values.items():
            parts += _bar(top, name, figures, BAR_WIDTH / most)
            top += ROW_HEIGHT
    width, height = NAME_WIDTH + BAR_WIDTH + VALUE_WIDTH + 2 * MARGIN, top + MARGIN
    return document(width, height, parts)


def _bar(top: int, name: str, figures: Sequence[float], scale: float) -> list[str]:
    left, middle = NAME_WIDTH + MARGIN, top + ROW_HEIGHT // 2
    median, least, most = statistics.median(figures), min(figures), max(figures)
    color = OUR_COLOR if name == OURS else PEER_COLOR
    return [
        text(left - 8, middle + 4, name, "text-anchor='end'"),
        f"<rect x='{left}' y='{top + 3}' width='{median * scale:.1f}' height='{ROW_HEIGHT - 6}' "
        f"fill='{color}'/>",
        f"<line x1='{left + least * scale:.1f}' x2='{left + most * scale:.1f}' y1='{middle}' "
        f"y2='{middle}' stroke='{LINE_COLOR}'/>",
        text(left + most * scale + 6, middle + 4, number(median)),
    ]


def write_svg(path: Path, drawn: Sequence[Panel]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(draw(drawn), encoding="utf-8")
    print(f"written to {path}")
