"""The benchmark of Ray in `docs/benchmarks.md` runs to its end, with a Ray of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cluster import UP_TIMEOUT_S
from commands import environment, run
from guide import ROOT, Block, blocks_run_by

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

SMALL = "--streams 1 --rounds 1 --replicas 1"


@pytest.mark.parametrize("block", blocks_run_by(__file__), ids=str)
def test_it_measures_both(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stream at a single process and on Ray; this interpreter is that of `make test-ray`."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    settings = environment(tmp_path) | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    line = block.code.replace(".venv-ray/bin/python", sys.executable).strip()
    printed = run(block, f"{line} {SMALL}", tmp_path, settings, 1.5 * UP_TIMEOUT_S)

    assert "1 streams, single process: " in printed
    assert "1 streams, Ray Serve: " in printed
