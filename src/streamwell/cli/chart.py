"""Lines over a row of places, as an SVG file. Pure.

Places are at equal distances, whatever their labels say, so that 1, 16 and `inf` fit on one axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import cycle

WIDTH, PANEL_HEIGHT, MARGIN, _LEGEND_HEIGHT = 720, 160, 56, 28
#: Of the lines by their names, which have one colour in all panels.
COLOURS = ("#2563eb", "#f59e0b", "#16a34a", "#9333ea", "#dc2626", "#0891b2", "#334155")
#: With more places than this a mark at each of them would hide the line.
_MAX_MARKS = 16

#: What is drawn: by what it is called, its value at each place, if it has one there.
Lines = Mapping[str, Sequence[float | None]]


def text(x: float, y: float, content: str, attributes: str = "") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' {attributes}>{escape(content)}</text>"


def document(width: float, height: float, parts: Sequence[str]) -> str:
    """A whole file, on white."""
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' "
        f"width='{width}' height='{height}' font-family='sans-serif' font-size='12'>\n"
        "<rect width='100%' height='100%' fill='white'/>"
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def draw(panels: Mapping[str, Lines], labels: Sequence[str], axis: str = "") -> str:
    """The names of the lines, and below them the panels, each with a scale of its own from 0 on.

    Args:
        panels: lines of as many values as there are labels.
        labels: of the places; empty where there is none.
        axis: what the labels count.
    """
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    colours = dict(zip(names, cycle(COLOURS), strict=False))
    parts = []
    for at, name in enumerate(names):
        x = MARGIN + (WIDTH - 2 * MARGIN) * at / len(names)
        parts.append(text(x, 20, name, f"fill='{colours[name]}'"))
    for number, (title, lines) in enumerate(panels.items()):
        parts += _panel(_LEGEND_HEIGHT + PANEL_HEIGHT * number, title, lines, labels, colours)
    height = _LEGEND_HEIGHT + PANEL_HEIGHT * len(panels) + MARGIN // 2
    parts.append(text(WIDTH / 2, height - 8, axis, "text-anchor='middle'"))
    return document(WIDTH, height, parts)


def _panel(
    top: float, title: str, lines: Lines, labels: Sequence[str], colours: Mapping[str, str]
) -> list[str]:
    values = [value for line in lines.values() for value in line if value is not None]
    most, last = max(values, default=0.0) or 1.0, max(len(labels) - 1, 1)
    bottom, drawn_height = top + PANEL_HEIGHT - 24, PANEL_HEIGHT - MARGIN

    def place(index: float, value: float) -> tuple[float, float]:
        x = MARGIN + (WIDTH - 2 * MARGIN) * index / last
        return x, bottom - drawn_height * value / most

    parts = [text(MARGIN, top + 20, title, "font-weight='bold'")]
    for share in (0.0, 0.5, 1.0):
        x, y = place(0, share * most)
        parts.append(text(x - 6, y + 4, _number(share * most), "text-anchor='end'"))
        parts.append(
            f"<line x1='{x}' x2='{WIDTH - MARGIN}' y1='{y:.1f}' y2='{y:.1f}' stroke='#e2e8f0'/>"
        )
    for index, label in enumerate(labels):
        parts.append(text(place(index, 0)[0], bottom + 16, label, "text-anchor='middle'"))
    for name, line in lines.items():
        points = [place(index, value) for index, value in enumerate(line) if value is not None]
        parts += _line(points, colours[name])
    return parts


def _line(points: Sequence[tuple[float, float]], colour: str) -> list[str]:
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    marks = [f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{colour}'/>" for x, y in points]
    line = f"<polyline points='{joined}' fill='none' stroke='{colour}'/>"
    return [line, *(marks if len(marks) <= _MAX_MARKS else ())]


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.3g}"
