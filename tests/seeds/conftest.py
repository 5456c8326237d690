"""Servers that the tests of the seeds share, and the programs of `examples/`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

from harness import DEADLINE_S, ServerProcess, clean_environment
from wire import RunExample

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Seconds that a run of the scripted server waits for a reader.
GRACE_S = 1.0


@pytest.fixture(scope="session")
def brooklet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The built-in model, with a preset of the user's own."""
    presets = tmp_path_factory.mktemp("presets")
    (presets / "count.toml").write_text(
        'template = "1 2 3 {prompt}"\nmax_tokens = 5\ntemperature = 0\n', encoding="utf-8"
    )
    flags = ("--num-threads", "1", "--presets-dir", str(presets))
    with closing(ServerProcess(tmp_path_factory.mktemp("server"), *flags)) as server:
        server.wait_until_ready()
        yield server


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The scripted engine: a token every 10 ms; the preset of seed 000 is the default."""
    flags = ("--engine", "scripted", "--scripted-step-s", "0.01")
    flags += ("--resume-grace-s", str(GRACE_S), "--prompt-preset", "human-assistant")
    with closing(ServerProcess(tmp_path_factory.mktemp("server"), *flags)) as server:
        server.wait_until_ready()
        yield server


@pytest.fixture(scope="session")
def run_example() -> RunExample:
    """Run a program of `examples/` to its end; it must end well."""

    def run(name: str, *arguments: str) -> str:
        command = [sys.executable, str(EXAMPLES / name), *arguments]
        result = subprocess.run(
            command,
            capture_output=True,
            env=clean_environment() | {"PYTHONIOENCODING": "utf-8"},
            timeout=DEADLINE_S,
            check=False,
        )
        assert 0 == result.returncode, result.stderr.decode()
        return result.stdout.decode()

    return run
