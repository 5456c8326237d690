"""The course of a stress test as an SVG file, from the history that locust writes."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path

WIDTH, PANEL_HEIGHT, MARGIN, LEGEND_HEIGHT = 720, 140, 56, 32
#: Of the kinds of requests, which have one colour in all panels; of all requests together.
COLOURS = ("#2563eb", "#f59e0b", "#16a34a", "#9333ea", "#dc2626", "#0891b2")
ALL_COLOUR = "#334155"

#: What is drawn: by the kind of request, or `ALL`, its value for each second.
Lines = dict[str, list[float]]
ALL = "Aggregated"


def panels(history: Path) -> dict[str, Lines]:
    """By their titles, from the rows that locust writes each second for each kind of request."""
    with history.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    # while locust does not know a kind yet, it writes no row for it
    seconds = sorted({row["Timestamp"] for row in rows})
    by_name: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows:
        by_name.setdefault(row["Name"], {})[row["Timestamp"]] = row

    def line(name: str, column: str) -> list[float]:
        values = [by_name[name].get(second, {}).get(column, "") for second in seconds]
        return [0.0 if value in ("", "N/A") else float(value) for value in values]

    first = [name for name in by_name if name.endswith(": first line")]
    whole = [name for name in by_name if name not in (*first, ALL)]
    return {
        "users": {ALL: line(ALL, "User Count")},
        "answers per second": {name: line(name, "Requests/s") for name in whole},
        "failures per second": {ALL: line(ALL, "Failures/s")},
        "ms to the first line, 95 %": {name.partition(":")[0]: line(name, "95%") for name in first},
        "ms to the end, 95 %": {name: line(name, "95%") for name in whole},
    }


def draw(drawn: Mapping[str, Lines]) -> str:
    """The panels below each other, over the seconds of the test, and the colours' names on top."""
    height = LEGEND_HEIGHT + PANEL_HEIGHT * len(drawn) + MARGIN // 2
    kinds = sorted({name for lines in drawn.values() for name in lines} - {ALL})
    colours = dict(zip(kinds, cycle(COLOURS), strict=False)) | {ALL: ALL_COLOUR}
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' "
        "font-family='sans-serif' font-size='12'>",
        "<rect width='100%' height='100%' fill='white'/>",
    ]
    for at, name in enumerate(kinds):
        x = MARGIN + (WIDTH - 2 * MARGIN) * at / len(kinds)
        parts.append(f"<text x='{x:.1f}' y='20' fill='{colours[name]}'>{name}</text>")
    for number, (title, lines) in enumerate(drawn.items()):
        parts += _panel(LEGEND_HEIGHT + PANEL_HEIGHT * number, title, lines, colours)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(top: int, title: str, lines: Lines, colours: Mapping[str, str]) -> list[str]:
    most = max((max(line) for line in lines.values()), default=0.0) or 1.0
    last = max(max(map(len, lines.values())) - 1, 1)
    bottom = top + PANEL_HEIGHT - 24
    drawn_height = PANEL_HEIGHT - MARGIN

    def place(second: float, value: float) -> tuple[float, float]:
        x = MARGIN + (WIDTH - 2 * MARGIN) * second / last
        return x, bottom - drawn_height * value / most

    parts = [f"<text x='{MARGIN}' y='{top + 20}' font-weight='bold'>{title}</text>"]
    for share in (0.0, 0.5, 1.0):
        x, y = place(0, share * most)
        value = f"{share * most:.0f}" if most >= 10 else f"{share * most:.3g}"
        parts.append(f"<text x='{x - 6}' y='{y + 4:.1f}' text-anchor='end'>{value}</text>")
        parts.append(f"<line x1='{x}' x2='{WIDTH - MARGIN}' y1='{y}' y2='{y}' stroke='#e2e8f0'/>")
    for quarter in range(5):
        x, y = place(last * quarter / 4, 0)
        parts.append(
            f"<text x='{x}' y='{y + 16}' text-anchor='middle'>{last * quarter // 4} s</text>"
        )
    for name, line in lines.items():
        points = " ".join(
            "{:.1f},{:.1f}".format(*place(second, value)) for second, value in enumerate(line)
        )
        parts.append(f"<polyline points='{points}' fill='none' stroke='{colours[name]}'/>")
    return parts
