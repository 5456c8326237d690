"""The programs of `docs/benchmarks.md` run to their end, at sizes whose figures mean nothing."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import DEADLINE_S, environment, run
from guide import ROOT, Block, blocks_run_by

from bench.report import OURS

pytestmark = [pytest.mark.slow, pytest.mark.bench, pytest.mark.timeout(1200)]

#: What each line gets besides; of two flags the last holds.
SMALL = {
    "engine": "--model tiny --streams 1 --rounds 1",
    "server": "--model tiny --clients 1 --rounds 1",
    "roofline": "--model tiny",
    "peers": "--model tiny --streams 1 --prefill 8 --rounds 1 --precision full --peers",
    "sampling": "--vocabulary 300 --streams 1 --rounds 1",
    "streaming": "--streams 1 --rounds 1 --seconds 1",
    "page": "--sections 0 --tokens-per-s 5000",
    "durability": "--model tiny --clients 1 --tokens 4 --rounds 1 --readers 2",
    "gpu": "--model tiny --device cpu --streams 1 --prompts 8 --new-tokens 4 --rounds 1",
    "families": "--model tiny --streams 1 --rounds 1",
    "adapters": "--model tiny --streams 1 --prefill 8 --rounds 1",
    "seq2seq": "--model t5tiny --streams 1 --rounds 1",
}


@pytest.mark.parametrize("block", blocks_run_by(__file__), ids=str)
def test_each_line_runs(block: Block, tmp_path: Path) -> None:
    """Two at a time, but for the first, which writes what another reads."""
    settings = environment(tmp_path) | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}

    def try_out(line: str) -> None:
        (program,) = re.findall(r"^python -m bench\.(\w+)", line)
        printed = run(block, f"{line} {SMALL[program]}", tmp_path, settings, 3 * DEADLINE_S)
        # others may be left out: they are not installed, or not for this processor
        assert f"{OURS} is left out" not in printed, f"{line}: {printed}"
        written = re.findall(r"--(?:json|svg) (\S+)", line)
        assert all((tmp_path / name).stat().st_size for name in written)

    first, *others = block.code.splitlines()
    try_out(first)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(try_out, others))
