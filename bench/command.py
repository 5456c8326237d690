"""The flags that the benchmarks share, and how they publish what they have measured."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report import Column, Row, print_summary, summarize, write_json


def command_line(program: str, description: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """A parser with the flags that every benchmark has."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("--model", default="qwen05", help="a name of bench.models, or a folder")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--json", type=Path, help="write everything to this file")
    return parser


def publish(
    results: Sequence[Row],
    columns: Mapping[str, Column],
    facts: Mapping[str, Any],
    json_path: Path | None,
) -> None:
    """Print the tables, and write the file if one is asked for.

    Raises:
        SystemExit: nobody could be measured.
    """
    if not results:
        raise SystemExit("nobody could be measured")
    summary = summarize(results, columns)
    print_summary(summary, columns)
    if json_path:
        write_json(json_path, {"machine": dict(facts), "summary": summary, "runs": list(results)})
