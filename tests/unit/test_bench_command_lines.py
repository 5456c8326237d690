"""The command lines of `docs/benchmarks.md` are those that the benchmarks take."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs"
#: In blocks, and within a text, where lines are broken anywhere.
WRITTEN = re.compile(r"^(?:\S+/)?python -m (bench[^#\n]+)|`python\s-m\s(bench[^`]+)`", re.MULTILINE)
LINES = sorted(
    {
        " ".join("".join(found).split())
        for path in GUIDE.glob("*.md")
        for found in WRITTEN.findall(path.read_text(encoding="utf-8"))
    }
)


class _Understood(Exception):
    """The command line was read, and nothing is to be measured."""


@pytest.mark.parametrize("line", LINES)
def test_the_benchmark_takes_the_line(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its flags exist and their values are allowed; nothing else comes before they are read."""
    read = argparse.ArgumentParser.parse_args

    def only_read(parser: argparse.ArgumentParser, arguments: list[str] | None = None) -> None:
        read(parser, arguments)
        raise _Understood

    name, *flags = shlex.split(line)
    module = importlib.import_module(f"{name}.__main__" if name == "bench.peers" else name)
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", only_read)
    monkeypatch.setattr(sys, "argv", [name, *flags])

    with pytest.raises(_Understood):
        module.main()
