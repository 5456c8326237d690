"""The commands of the guide do what it says; each page is taken from its file and run."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest
from commands import run_page
from guide import ROOT, Block, blocks, guide
from hub_stand_in import Hub

from streamwell.cli import app

ALL = [block for path in guide() for block in blocks(path)]
#: What people type, or save to a file and start, whole or a part of it.
COMMANDS = [one for one in ALL if one.language in ("bash", "python", "js")]
FRAGMENTS = [one for one in ALL if one.stands_in]
PAGES = sorted({block.path for block in COMMANDS if block.is_of_its_page} - {ROOT / "README.md"})
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TARGETS = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_runs(path: Path, folder: Path, url: str, hub: Hub) -> None:
    """Every command of a page ends well, one after the other; its models of the hub are fetched.

    A stream in what it prints misses no number and repeats none, also where a server was killed in
    the middle, and is whole.
    """
    page = list(blocks(path))
    all_printed = run_page(page, folder, url, hub.url)

    code = "".join(block.code for block in page if block.is_of_its_page)
    assert all(
        "model.safetensors" in hub.fetched(name) for name in hub.repositories if name in code
    )
    for printed in all_printed:
        ids = re.findall(r"^id: \S+:(\d+)$", printed, re.MULTILINE)
        if ids:
            first, last = int(ids[0]), int(ids[-1])
            assert list(range(first, last + 1)) == list(map(int, ids))
            assert "event: done" in printed or "data: [DONE]" in printed


@pytest.mark.parametrize("block", FRAGMENTS, ids=str)
def test_fragment_stands_in_its_source(block: Block) -> None:
    """Each paragraph of it, but for how lines are broken."""
    source = _without_layout((ROOT / block.stands_in).read_text(encoding="utf-8"))
    missing = [
        paragraph
        for paragraph in block.code.split("\n\n")
        if _without_layout(paragraph).strip("(),") not in source
    ]

    assert [] == missing


def _without_layout(code: str) -> str:
    """Without spaces, and the commas that the formatter puts before brackets that close."""
    return re.sub(r"\s+|,(?=\s*[)\]}])", "", code)


@pytest.mark.parametrize("block", ALL, ids=str)
def test_block_is_sound(block: Block) -> None:
    """Whatever it is, it is well-formed: programs, data, and every line that starts a server."""
    assert block.language in {"bash", "python", "js", "json", "toml", "text"}
    assert block.language != "js" or not block.is_of_its_page, "nobody runs it: say who does"
    if block.run_by:
        assert "blocks_run_by(__file__)" in (ROOT / block.run_by).read_text(encoding="utf-8")
    if block.language == "json":
        json.loads(block.code)
    if block.language == "toml":
        tomllib.loads(block.code)
    if block.language == "python" and not block.stands_in:
        compile(block.code, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if block.language == "bash":
        for line in re.findall(r"^streamwell [^#&\n]*", block.code, re.MULTILINE):
            app.parse_args(line.split()[1:], exit_on_error=False, print_error=False)
        assert set(re.findall(r"^make ([a-z0-9-]+)", block.code, re.MULTILINE)) <= set(TARGETS)


def test_extras_exist() -> None:
    """What the guide says to install beside the package are its extras."""
    text = "".join(path.read_text(encoding="utf-8") for path in guide())
    named = ",".join(re.findall(r"streamwell\[([a-z,]+)\]", text)).split(",")

    assert set(named) <= set(PROJECT["optional-dependencies"])


def test_named_tests_exist() -> None:
    """A test that the guide names is defined somewhere."""
    text = "".join(path.read_text(encoding="utf-8") for path in guide())
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    defined = {name for source in sources for name in re.findall(r"def (test_\w+)\(", source)}

    assert set(re.findall(r"`(test_[a-z0-9_]+)`", text)) <= defined
