"""Starts Ray on this machine, and `streamwell serve --ray` on it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil
from harness import HOST, ServerProcess, eventually, free_port, stays

from streamwell.wiring.ray_start import ENVIRONMENT

#: Ray starts a dozen processes of Python; on a busy machine that takes minutes.
UP_TIMEOUT_S = 600.0
#: `ray start`, which would give up on a busy machine.
_RAY = """
from ray.scripts.scripts import main
from streamwell.wiring.ray_start import choose_ports_of_agents

choose_ports_of_agents()
main()
"""
#: Other clusters may have those that Ray takes by default.
_PORTS = ("--port", "--object-manager-port", "--node-manager-port", "--ray-client-server-port")
_FLAGS = (
    "--no-monitor",
    "--include-log-monitor=false",
    "--include-dashboard=false",
    "--object-store-memory=100000000",
)


@contextlib.contextmanager
def running_cluster(folder: Path, *flags: str) -> Iterator[tuple[str, int]]:
    """Address of a Ray cluster, and the pid of its parent process; of two flags the last holds."""
    ports = {name: free_port() for name in _PORTS}
    command = [sys.executable, "-c", _RAY, "start", "--head", "--block"]
    command += [*(f"{name}={port}" for name, port in ports.items()), *_FLAGS, *flags]
    log_path = folder / "ray.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=ENVIRONMENT | os.environ
        )

    def is_up() -> bool:
        assert process.poll() is None, log_path.read_text(errors="replace")
        return b"runtime started" in log_path.read_bytes()

    try:
        eventually(is_up, "Ray is up", UP_TIMEOUT_S)
        yield f"{HOST}:{ports['--port']}", process.pid
    finally:
        _end(psutil.Process(process.pid))


def end_serve() -> None:
    """End the Serve of the cluster, with its proxy: other tests want one of their own.

    In a process without handles of it, whose event loops may be closed; `serve shutdown` would ask
    the dashboard, which is off.
    """
    program = "import ray; from ray import serve; ray.init(); serve.shutdown()"
    subprocess.run([sys.executable, "-c", program], check=True)


def _end(parent: psutil.Process) -> None:
    """End a cluster with all that it has started."""
    family = [*parent.children(recursive=True), parent]
    parent.terminate()
    _, alive = psutil.wait_procs(family, timeout=30)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=30)


class RayServer(ServerProcess):
    """`streamwell serve --ray` on a cluster that is there."""

    def __init__(self, folder: Path, cluster_pid: int, *flags: str) -> None:
        self._cluster_pid = cluster_pid
        replicas = ("--ray-gateways", "2", "--ray-replicas", "2", "--num-threads", "1")
        super().__init__(folder, "brooklet", "--ray", *replicas, *flags)

    def wait_until_up(self) -> None:
        # any gateway may answer: once is not enough
        eventually(lambda: stays(self.is_ready, 1.0), f"{self.url} is ready", UP_TIMEOUT_S)

    def is_ready(self) -> bool:
        """Before the proxy has its port, connections may be cut."""
        with contextlib.suppress(httpx2.TransportError):
            return super().is_ready()
        return False

    def replicas(self, deployment: str) -> list[psutil.Process]:
        """The processes of a deployment's replicas."""
        found = []
        for process in psutil.Process(self._cluster_pid).children(recursive=True):
            try:
                if f"ServeReplica:streamwell:{deployment}" in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def num_at_work(self) -> float:
        """Sequences that any replica runs or holds, as one of the gateways has seen it last."""
        metrics = self.metrics()
        return metrics["requests_running"] + metrics["requests_waiting"]
