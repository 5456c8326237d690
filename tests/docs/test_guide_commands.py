"""The commands of the guide do what it says; each page is taken from its file and run."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest
from brooklet_lora import build_brooklet_lora
from commands import run_page
from guide import ROOT, Block, blocks, guide

from streamwell.cli import app
from streamwell.models import BUILT_IN, brooklet_path, built_in_path

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
    build_brooklet_lora(tmp_path / "polite-adapter", seed=1)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_runs(path: Path, folder: Path, url: str) -> None:
    """Every command of a page ends well, one after the other; streams in it lose no number."""
    printed = run_page(list(blocks(path)), folder, url)

    for text in printed:
        numbers = [int(number) for number in re.findall(r"^id: \S+:(\d+)$", text, re.MULTILINE)]
        assert numbers == list(range(numbers[0], numbers[-1] + 1)) if numbers else True


@pytest.mark.slow
def test_a_killed_server_loses_nothing(folder: Path, url: str) -> None:
    """Both halves of the stream in the page are one, from the first token to the end."""
    page = ROOT / "docs" / "durable-streams.md"
    (printed,) = run_page(list(blocks(page)), folder, url)
    texts = [json.loads(data) for data in re.findall(r"^data: (\{\"text\".*)$", printed, re.MULTILINE)]

    assert 30 == len(texts)
    assert "event: done" in printed


def test_enough_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Most commands are run; each of the others has a reason that is printed."""
    left_out = [block for block in COMMANDS if block.not_run]
    with capsys.disabled():
        print(f"\n{len(COMMANDS) - len(left_out)} of {len(COMMANDS)} blocks of commands are run")
        for block in left_out:
            print(f"  not {block}: {block.not_run}")

    assert len(COMMANDS) - len(left_out) >= LEAST_SHARE * len(COMMANDS)


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
