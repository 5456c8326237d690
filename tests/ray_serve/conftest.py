"""A Ray cluster of one machine for all tests here, and the application on it.

Started by `make test-ray`, in an environment that has Ray; elsewhere there is nothing to collect.
"""

from __future__ import annotations

import importlib.util
import secrets
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

_FOLDERS = ("e2e", "contract", "chaos", "docs")
sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in _FOLDERS]

if importlib.util.find_spec("ray") is None:
    collect_ignore_glob = ["test_*.py"]

from cluster import RayServer, running_cluster  # noqa: E402 - found by the paths above

from streamwell.wiring.ray_start import ENVIRONMENT  # noqa: E402 - after them


@pytest.fixture(scope="session", autouse=True)
def environment() -> Iterator[None]:
    """Ray reads some of it when it is imported, which a test without a cluster may do first."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        # `ray start` wants one, and makes none
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex())
        yield


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The pid of the cluster's parent process; the environment says how to join it."""
    folder = tmp_path_factory.mktemp("ray")
    with pytest.MonkeyPatch.context() as patch, running_cluster(folder) as (address, pid):
        patch.setenv("RAY_ADDRESS", address)
        yield pid


@pytest.fixture(scope="module")
def flags() -> tuple[str, ...]:
    """More flags of the server: for the run log, which is the file in its data folder without."""
    return ()


@pytest.fixture(scope="module")
def server(
    cluster: int, flags: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RayServer]:
    """The built-in model: two gateways with one run log, two engine replicas."""
    folder = tmp_path_factory.mktemp("server")
    with closing(RayServer(folder, cluster, *flags)) as server:
        server.wait_until_up()
        yield server
