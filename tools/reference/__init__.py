"""Writes the pages of docs that are made from the code: settings, commands, API, decisions.

    python -m tools.reference

The pages are committed; `tests/docs/test_reference.py` says whether they are up to date.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOTICE = "<!-- written by `make reference`; changes made here are lost -->"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; cells may have any character."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
