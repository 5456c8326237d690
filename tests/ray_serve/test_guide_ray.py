"""The commands of `docs/ray.md` serve, with a Ray of their own and in a cluster."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import postgres
import pytest
from cluster import UP_TIMEOUT_S, end_serve, running_cluster
from commands import answer_of, environment, served, serving
from guide import ROOT, blocks_run_by
from harness import HOST, eventually, free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ON_ITS_OWN, IN_A_CLUSTER, DEPLOYED = blocks_run_by(__file__)


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


def test_serve_deploy_has_ray_start_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the address of a database in the file; the port is another one here, too."""
    port, dashboard_port = free_port(), free_port()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_DASHBOARD_ADDRESS", f"http://{HOST}:{dashboard_port}")
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    dashboard = (f"--dashboard-host={HOST}", f"--dashboard-port={dashboard_port}")
    flags = ("--include-dashboard=true", *dashboard, "--num-cpus=6")
    with postgres.running_cluster() as database, running_cluster(tmp_path, *flags):
        _write_config(tmp_path, database.new_database(), port)
        subprocess.run(["bash", "-euc", DEPLOYED.code], cwd=tmp_path, check=True)
        eventually(lambda: _answer(f"http://{HOST}:{port}"), "it answers", UP_TIMEOUT_S)


def _write_config(folder: Path, database_url: str, port: int) -> None:
    """The project's file where the command expects it."""
    name = "deploy/ray/serve.yaml"
    text = (ROOT / name).read_text(encoding="utf-8")
    text, num_urls = re.subn(r"postgresql\+psycopg://<\S+", database_url, text)
    text, num_ports = re.subn(r"port: 8000$", f"port: {port}", text, flags=re.MULTILINE)
    assert (1, 1) == (num_urls, num_ports)
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text(text, encoding="utf-8")


def _answer(address: str) -> str:
    """Nothing while Ray's proxy has no application, or one whose replicas load their model."""
    try:
        return answer_of(address).strip()
    except OSError:
        return ""
