"""`--presets-dir` and `--prompt-preset` are looked at before the server serves anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from harness import DEADLINE_S, clean_environment

pytestmark = pytest.mark.slow


def test_a_wrong_preset_ends_the_server_with_one_line(tmp_path: Path) -> None:
    """Exit code 2, and a line that names the file and the field."""
    path = tmp_path / "mine.toml"
    path.write_text('template = "Q: {prompt}"\ntemperature = -1\n', encoding="utf-8")
    command = [sys.executable, "-m", "streamwell", "serve", "--engine", "scripted", "--port", "0"]
    flags = ["--data-dir", str(tmp_path), "--presets-dir", str(tmp_path)]
    result = subprocess.run(
        [*command, *flags],
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=DEADLINE_S,
        check=False,
    )

    line = f"streamwell: {path}: temperature: Input should be greater than or equal to 0\n"
    assert (2, line) == (result.returncode, result.stderr)
