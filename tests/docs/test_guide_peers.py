"""The commands of `bench.peers` run with all peers, at sizes whose figures mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import environment, run
from guide import Block, blocks_run_by

pytestmark = [pytest.mark.slow, pytest.mark.apart, pytest.mark.timeout(0)]

#: To install what is not there takes an hour and more.
LINE_TIMEOUT_S = 3 * 3600
#: What each comparison gets besides; of two flags the last holds.
SMALL = "--model smol135 --streams 1 --prefill 64 --rounds 1"


@pytest.mark.parametrize("block", blocks_run_by(__file__), ids=str)
def test_every_peer_takes_part(block: Block, folder: Path) -> None:
    """Those that are installed already stay as they are; nobody is left out of a comparison."""
    settings = environment(folder)
    for line in block.code.splitlines():
        command = line.partition("#")[0].strip()
        if command.startswith("python -m bench.peers"):
            command = f"{command} {SMALL}"
        printed = run(block, command, folder, settings, LINE_TIMEOUT_S)

        assert "left out" not in printed, f"{command}: {printed}"
