"""Servers for the tests of single seeds, and what the log of one says of a run."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from unittest import mock

sys.path.append(str(Path(__file__).parents[1] / "e2e"))

from harness import ServerProcess, eventually

from streamwell.settings import COMPAT

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@contextmanager
def serving(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """A server that is ready, started in this environment."""
    with mock.patch.dict(os.environ, environment or {}):
        server = ServerProcess(folder, *arguments, "--num-threads", "1")
    with closing(server):
        server.wait_until_ready()
        yield server


@contextmanager
def compatible(folder: Path, environment: Mapping[str, str]) -> Iterator[ServerProcess]:
    """A decoder and an encoder-decoder for the clients of transformers-openai-api."""
    flags = ("brooklet", "brooklet-t5", "--compat", COMPAT, "--resume-grace-s", "0.5")
    with serving(folder, *flags, environment=environment) as server:
        yield server


def lines_of(server: ServerProcess, event: str, run_id: str = "") -> list[dict[str, str]]:
    """The values in the log lines of an event, perhaps of one run alone."""
    lines = [_COLOURS.sub("", line) for line in server.log().splitlines()]
    found = [dict(re.findall(r"(\w+)=(\S+)", line)) for line in lines if f"] {event} " in line]
    return [line for line in found if not run_id or line.get("run_id") == run_id]


def line_of(server: ServerProcess, event: str, run_id: str) -> dict[str, str]:
    """The one line of an event of a run, once it is there."""
    return eventually(lambda: lines_of(server, event, run_id), f"{event} of {run_id}")[0]
