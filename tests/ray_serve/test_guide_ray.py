"""The commands of `docs/ray.md` serve, with a Ray of their own and in a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import UP_TIMEOUT_S, end_serve
from commands import answer_of, environment, served, serving
from guide import blocks_run_by
from harness import HOST, free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ON_ITS_OWN, IN_A_CLUSTER = blocks_run_by(__file__)


def test_the_command_brings_its_own_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`streamwell serve --ray` starts Ray on this machine, and ends with it."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with served(ON_ITS_OWN, tmp_path, environment(tmp_path), UP_TIMEOUT_S) as address:
        assert answer_of(address).strip()


@pytest.mark.usefixtures("cluster")
def test_serve_run_finds_the_application(tmp_path: Path) -> None:
    """It is served where Serve listens in that cluster, until Ctrl-C."""
    port, settings = free_port(), environment(tmp_path)
    place = ["--http-host", HOST, "--http-port", str(port), "--proxy-location", "HeadOnly"]
    program = str(Path(sys.executable).with_name("serve"))
    subprocess.run([program, "start", *place], env=os.environ | settings, check=True)
    command = ["bash", "-euc", IN_A_CLUSTER.code]
    try:
        with serving(command, tmp_path, port, settings, UP_TIMEOUT_S, signal.SIGINT) as address:
            assert answer_of(address).strip()
    finally:
        end_serve()
