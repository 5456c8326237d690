"""The commands of the guide do what it says; each page is taken from its file and run."""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from brooklet_lora import build_brooklet_lora
from commands import run_page
from guide import ROOT, Block, blocks, guide

from streamwell.cli import app
from streamwell.models import BUILT_IN, built_in_path

ALL = [block for path in guide() for block in blocks(path)]
#: What people type, or save to a file and start; the rest is data, pictures and fragments.
COMMANDS = [one for one in ALL if one.language in ("bash", "python") and not one.is_fragment]
LEAST_SHARE = 0.55
PAGES = sorted({block.path for block in COMMANDS if not block.not_run} - {ROOT / "README.md"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with what the guide takes to be in it."""
    decoder, encoder_decoder = map(built_in_path, BUILT_IN)
    (tmp_path / "my-model").symlink_to(decoder)
    (tmp_path / "t5-small").symlink_to(encoder_decoder)
    (tmp_path / "models" / "owner").mkdir(parents=True)
    (tmp_path / "models" / "owner" / "name").symlink_to(decoder)
    (tmp_path / "notes.txt").write_text("The river rose by two metres.")
    build_brooklet_lora(tmp_path / "polite-adapter", seed=1)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_runs(path: Path, folder: Path, url: str) -> None:
    """Every command of a page ends well, one after the other.

    A stream in what it prints misses no number and repeats none, also where a server was killed in
    the middle, and is whole.
    """
    for printed in run_page(list(blocks(path)), folder, url):
        ids = re.findall(r"^id: \S+:(\d+)$", printed, re.MULTILINE)
        if ids:
            first, last = int(ids[0]), int(ids[-1])
            assert list(range(first, last + 1)) == list(map(int, ids))
            assert "event: done" in printed or "data: [DONE]" in printed


def test_enough_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Most commands are run; each of the others has its reason."""
    left_out = [f"{block}: {block.not_run}" for block in COMMANDS if block.not_run]
    num_run = len(COMMANDS) - len(left_out)
    with capsys.disabled():
        sys.stdout.write(f"\n{num_run} of {len(COMMANDS)} commands of the guide are run\n")

    assert num_run >= LEAST_SHARE * len(COMMANDS), "\n".join(left_out)


@pytest.mark.parametrize("block", ALL, ids=str)
def test_block_is_sound(block: Block) -> None:
    """What is not run is well-formed: programs, data, and every line that starts a server."""
    assert block.language in {"bash", "python", "js", "json", "toml", "text"}
    assert block.language != "js" or block.not_run, "nobody runs it: say why"
    if block.language == "json":
        json.loads(block.code)
    if block.language == "toml":
        tomllib.loads(block.code)
    if block.language == "python" and not block.is_fragment:
        compile(block.code, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if block.language == "bash":
        for line in re.findall(r"^streamwell [^#&\n]*", block.code, re.MULTILINE):
            app.parse_args(line.split()[1:], exit_on_error=False, print_error=False)
