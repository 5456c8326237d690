"""Latency against load, as SVG of our own or as PNG by matplotlib."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path

from streamwell.cli import chart
from streamwell.cli.bench.report import Result
from streamwell.core.errors import InvalidRequest

_PANELS = {"ttft": "time to first token, ms", "itl": "inter-token latency, ms"}
_STATISTICS = ("median", "p99")


def check_plot(path: Path) -> None:
    """Raises `InvalidRequest` if it could not be drawn, before anything is measured."""
    if path.suffix == ".png" and importlib.util.find_spec("matplotlib") is None:
        raise InvalidRequest("--plot draws .png with matplotlib: pip install 'streamwell[plot]'")


def write_plot(path: Path, results: Sequence[Result]) -> None:
    """Draw median and p99 of TTFT and ITL, by level.

    Raises:
        OSError: the file cannot be written.
    """
    panels = {
        title: {name: [r.figures[f"{name}_{key}_ms"] for r in results] for name in _STATISTICS}
        for key, title in _PANELS.items()
    }
    labels = [result.level.label for result in results]
    axis = results[0].level.unit
    if path.suffix == ".png":
        _write_png(path, panels, labels, axis)
    else:
        path.write_text(chart.draw(panels, labels, axis), encoding="utf-8")


def _write_png(
    path: Path, panels: dict[str, dict[str, list[float | None]]], labels: list[str], axis: str
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained")
    for place, (title, lines) in zip(figure.subplots(len(panels)), panels.items(), strict=True):
        for name, values in lines.items():
            drawn = [math.nan if value is None else value for value in values]
            place.plot(range(len(labels)), drawn, marker="o", label=name)
        place.set(title=title, ylim=(0, None), xticks=range(len(labels)), xticklabels=labels)
        place.legend()
    figure.supxlabel(axis)
    figure.savefig(path, dpi=150)
