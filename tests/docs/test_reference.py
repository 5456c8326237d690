"""The pages of docs that are made from the code say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamwell.cli import app
from streamwell.server.app import api_schema
from tools.reference import ROOT
from tools.reference.pages import PAGES

MIGRATION = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
HERE = [row.split(" | ", 1)[1] for row in MIGRATION.splitlines() if row.startswith("| ")]
REFERENCE = "".join(
    (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    for name in ("settings.md", "commands.md")
)
GUIDE = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.name))
def test_page_is_up_to_date(path: Path) -> None:
    """A setting, a command, a route or a decision that changes wants `make reference`."""
    assert PAGES[path]() == path.read_text(encoding="utf-8"), "run `make reference`"


def test_what_is_said_to_be_here_is_here() -> None:
    """Flags and routes in the right columns of the page for those who come from elsewhere exist."""
    flags = {name for one in app["serve"].assemble_argument_collection() for name in one.names}
    routes = {
        f"{method.upper()} {path}"
        for path, methods in api_schema()["paths"].items()
        for method in methods
    }
    spans = [span for cell in HERE for span in re.findall(r"`([^`]+)`", cell)]
    said_flags = {word for span in spans for word in re.findall(r"--[a-z][a-z-]+", span)}
    said_routes = {span for span in spans if re.match(r"(GET|POST|DELETE) /", span)}

    assert len(said_flags) > 20
    assert len(said_routes) > 8
    assert set() == said_flags - flags
    assert set() == said_routes - routes


def test_every_variable_that_is_named_exists() -> None:
    """A variable `STREAMWELL_…` anywhere in the guide is that of a flag."""
    named = {
        variable
        for path in GUIDE
        for variable in re.findall(r"STREAMWELL_[A-Z][A-Z_]+", path.read_text(encoding="utf-8"))
    }

    assert set() == {variable for variable in named if f"`{variable}`" not in REFERENCE}
