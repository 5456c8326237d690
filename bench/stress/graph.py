"""The course of a stress test as an SVG file, from the history that locust writes."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from streamwell.cli import chart

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
    """The panels below each other, over the seconds of the test."""
    num_seconds = max((len(line) for lines in drawn.values() for line in lines.values()), default=0)
    labels = [""] * num_seconds
    for quarter in range(5 if num_seconds else 0):
        second = (num_seconds - 1) * quarter // 4
        labels[second] = f"{second} s"
    return chart.draw(drawn, labels)
