"""What both benchmarks share: the machine, statistics, tables and the JSON file."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

OUT_DIR = Path(__file__).parent / "out"


def has_bfloat16() -> bool:
    """Whether this machine computes bfloat16 in hardware."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported()
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


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[round(percent / 100 * (len(ordered) - 1))]


def median_and_spread(values: Sequence[float]) -> str:
    """`median (min-max)`, in the digits that the size of the numbers deserves."""
    if len(values) == 1:
        return _number(values[0])
    low, high = _number(min(values)), _number(max(values))
    return f"{_number(statistics.median(values))} ({low}-{high})"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


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
