"""The course of a stress test as an SVG file, from the history that locust writes."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

WIDTH, PANEL_HEIGHT, MARGIN = 720, 140, 56
COLOURS = ("#2563eb", "#f59e0b", "#16a34a", "#9333ea")

#: What is drawn: by what it is called, its value for each second.
Lines = dict[str, list[float]]


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
    whole = [name for name in by_name if name not in (*first, "Aggregated")]
    return {
        "users": {"users": line("Aggregated", "User Count")},
        "answers per second": {name: line(name, "Requests/s") for name in whole},
        "failures per second": {"failures": line("Aggregated", "Failures/s")},
        "ms to the first line, 95 %": {name.partition(":")[0]: line(name, "95%") for name in first},
        "ms to the end, 95 %": {name: line(name, "95%") for name in whole},
    }


def draw(drawn: Mapping[str, Lines]) -> str:
    """The panels below each other, over the seconds of the test."""
    height = PANEL_HEIGHT * len(drawn) + MARGIN // 2
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' "
        "font-family='sans-serif' font-size='12'>",
        "<rect width='100%' height='100%' fill='white'/>",
    ]
    for number, (title, lines) in enumerate(drawn.items()):
        parts += _panel(PANEL_HEIGHT * number, title, lines)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(top: int, title: str, lines: Lines) -> list[str]:
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
    for at, (name, line) in enumerate(lines.items()):
        points = " ".join(
            "{:.1f},{:.1f}".format(*place(second, value)) for second, value in enumerate(line)
        )
        colour = COLOURS[at % len(COLOURS)]
        parts.append(f"<polyline points='{points}' fill='none' stroke='{colour}'/>")
        x = WIDTH - MARGIN - 110 * (len(lines) - 1 - at)
        parts.append(
            f"<text x='{x}' y='{top + 20}' text-anchor='end' fill='{colour}'>{name}</text>"
        )
    return parts
