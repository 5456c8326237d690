"""The engine contract, signed by `RayServeEngine` over real replicas of a real engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster import end_serve
from engines import MAX_MODEL_LEN, MAX_NUM_SEQS, Rig
from test_engine_contract import *  # noqa: F403 - the tests, and the fixture `engine`
from tiny_llama import build_tiny_llama

from streamwell.settings import Settings

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rig(cluster: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Two deployments: of a model, and of one whose weights are missing."""
    import ray

    folder = build_tiny_llama(tmp_path_factory.mktemp("model"))
    broken = build_tiny_llama(tmp_path_factory.mktemp("broken"))
    (broken / "model.safetensors").unlink()
    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
    with asyncio.Runner() as runner:
        make = _deploy("contract", folder)
        make_broken = _deploy("contract-broken", broken)
        yield Rig(runner.run, make, make_broken)
    ray.shutdown()
    end_serve()


def _deploy(name: str, folder: Path) -> Callable[[], object]:
    """One replica of an engine; returns what makes gateways' engines over it."""
    from ray import serve

    from streamwell.backends.ray_serve.engine import RayServeEngine
    from streamwell.backends.ray_serve.handle import Replicas
    from streamwell.wiring.ray_cluster import EngineReplica

    settings = Settings(
        device="cpu",
        dtype="float32",
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=64,
        num_threads=1,
        check_memory=False,
    )

    class Patient(EngineReplica.func_or_class):  # type: ignore[misc, name-defined]
        async def check_health(self) -> None:
            """A replica whose model cannot be loaded is to stay, and to say so."""

    options = {"max_ongoing_requests": 100, "ray_actor_options": {"num_cpus": 0}}
    deployment = serve.deployment(Patient, name="EngineReplica", **options)
    app = deployment.bind(settings, str(folder), None)
    serve.run(app, name=name, route_prefix=None)

    def make() -> RayServeEngine:
        replicas = Replicas(serve.get_app_handle(name))
        return RayServeEngine(replicas, report_s=0.05, patience_s=0)

    return make
