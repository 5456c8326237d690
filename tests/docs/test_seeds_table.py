"""The table of docs/seeds.md: 37 rows, whose tests and programs are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d+ \|", line)
]


def test_every_requirement_has_a_row() -> None:
    """They are numbered from 1 to 37."""
    assert list(map(str, range(1, 38))) == [row[0] for row in ROWS]


def test_what_a_row_names_is_there() -> None:
    """Each test is defined in its file, and each program is in `examples/`."""
    for _number, _what, tests, examples in ROWS:
        for file, name in re.findall(r"`([\w/.]+)::(\w+)`", tests):
            path = ROOT / (file if "/" in file else f"tests/seeds/{file}")
            source = path.read_text(encoding="utf-8")
            assert re.search(rf"^def {name}\(", source, re.MULTILINE), name
        for file in re.findall(r"`([\w/.]+)`", examples):
            assert (ROOT / "examples" / file).is_file(), file
