"""What both benchmarks share: the machine, statistics, tables and the JSON file.

Results are rows: a `case`, a `contender`, and its measures by name. Everybody is compared with us.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

Row = Mapping[str, Any]

#: The contender that all others are compared with.
OURS = "streamwell"


@dataclass(frozen=True, slots=True)
class Column:
    """A measure: its header, and which way is up."""

    header: str
    more_is_better: bool


def has_bfloat16() -> bool:
    """Whether this machine computes bfloat16 in hardware."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    cpu = torch.cpu
    return bool(cpu._is_avx512_bf16_supported() or cpu._is_amx_tile_supported())


def resolve_dtype(name: str) -> str:
    """The dtype that all contenders run in; `auto` is the one that this machine computes fast."""
    if name != "auto":
        return name
    return "bfloat16" if has_bfloat16() else "float32"


def machine() -> dict[str, Any]:
    """What was measured on, and with what."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "bfloat16_hardware": has_bfloat16(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "load_average": round(os.getloadavg()[0], 1),
        "environment": {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("OMP_", "GOMP_", "KMP_", "MKL_"))
        },
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "streamwell": version("streamwell"),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def print_machine(facts: dict[str, Any]) -> None:
    print("  ".join(f"{name}={value}" for name, value in facts.items()), flush=True)


def median_and_spread(values: Sequence[float]) -> str:
    """`median (min-max)`, in the digits that the size of the numbers deserves."""
    if len(values) == 1:
        return number(values[0])
    low, high = number(min(values)), number(max(values))
    return f"{number(statistics.median(values))} ({low}-{high})"


def number(value: float) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f}"


def summarize(results: Sequence[Row], columns: Mapping[str, Column]) -> list[dict[str, Any]]:
    """One row per case and contender: its figures, and our lead over it (over 1: ahead).

    A lead is taken within each round, where both ran minutes apart, and then the median of these.
    """
    cases = list(dict.fromkeys(row["case"] for row in results))
    names = list(dict.fromkeys(row["contender"] for row in results))
    summary = []
    for case in cases:
        ours = _by_round(results, case, OURS)
        for name in names:
            theirs = _by_round(results, case, name)
            pairs = [(ours[index], row) for index, row in theirs.items() if index in ours]
            keys = [key for key in columns if all(key in row for row in theirs.values())]
            if not theirs:
                continue
            cells = {key: [row[key] for row in theirs.values()] for key in keys}
            leads = {
                key: [_lead(a[key], b[key], columns[key]) for a, b in pairs]
                for key in keys
                if pairs and name != OURS and all(key in a for a, _ in pairs)
            }
            summary.append({"case": case, "contender": name, "cells": cells, "leads": leads})
    return summary


def _by_round(results: Sequence[Row], case: str, contender: str) -> dict[int, Row]:
    wanted = (case, contender)
    return {row["round"]: row for row in results if (row["case"], row["contender"]) == wanted}


def _lead(ours: float, theirs: float, column: Column) -> float:
    """How many times better we are."""
    better, worse = (ours, theirs) if column.more_is_better else (theirs, ours)
    return better / worse if worse else math.inf


def print_summary(summary: Sequence[Row], columns: Mapping[str, Column]) -> None:
    """Print two tables: the figures, and our lead in each of them."""
    headers = [column.header for column in columns.values()]
    print("\nMedian (min-max) over the rounds:\n")
    _print_cells(summary, "cells", ["case", "contender", *headers], columns)
    peers = [row for row in summary if row["leads"]]
    if peers:
        print(f"How many times better {OURS} is (over 1: ahead), per round:\n")
        _print_cells(peers, "leads", ["case", "compared with", *headers], columns)


def _print_cells(
    summary: Sequence[Row], part: str, header: Sequence[str], columns: Mapping[str, Column]
) -> None:
    cells = [
        [median_and_spread(row[part][key]) if key in row[part] else "" for key in columns]
        for row in summary
    ]
    firsts = [[row["case"], row["contender"]] for row in summary]
    print_table(header, [a + b for a, b in zip(firsts, cells, strict=True)])


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table, padded so that it reads well in a terminal."""
    widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]
    rule = ["-" * width for width in widths]
    for line in (header, rule, *rows):
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("| " + " | ".join(cells) + " |")
    print(flush=True)


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"written to {path}")
