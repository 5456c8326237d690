"""The application as Ray Serve deployments: gateways, and engine replicas of each model.

A gateway is the whole server but for its engines: HTTP, SSE, WebSocket, run log. Gateways share
nothing but the database. What Ray does by default and must not do here is changed here; each
change says why.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ray import serve
from ray.serve.config import HTTPOptions, ProxyLocation
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import LoggingConfig
from starlette.types import ASGIApp

from streamwell.backends.ray_serve.engine import RayServeEngine
from streamwell.backends.ray_serve.handle import OtherGateways, Replicas
from streamwell.backends.ray_serve.messages import decode_report
from streamwell.backends.ray_serve.replica import Replica
from streamwell.core.engine_state import EngineState
from streamwell.core.errors import LoadError
from streamwell.models.resolve import resolve
from streamwell.service.shared_runs import SharedRuns
from streamwell.settings import Settings
from streamwell.telemetry import configure_logging
from streamwell.wiring import build
from streamwell.wiring.engines import make_engine
from streamwell.wiring.models import check_memory

APP_NAME = "streamwell"
GATEWAY = "Gateway"
#: More than one look, abort or report of each gateway at a time.
_CONTROL_CALLS = 64
_CLOSE_S = 5.0
_HEALTH_S = 2.0
_REPORT_S = 60.0
#: Seconds that a gateway stays apart until it has found its models.
_LOAD_S = 10.0


def engine_name(index: int) -> str:
    """The deployment of the model at this place among the settings' models."""
    return f"Engine-{index}"


async def _folder(model: str, settings: Settings) -> Path:
    """A model on this machine; it may have to be downloaded."""
    with_code = settings.trust_remote_code
    return await asyncio.to_thread(resolve, model, settings.revision, with_code=with_code)


#: Ray's default keeps a line per request, with its path, in a file of each process.
LOGGING = LoggingConfig(enable_access_log=False, log_level="WARNING")


@serve.deployment(logging_config=LOGGING)
class EngineReplica(Replica):
    """One engine process, and the actor that other machines reach it by."""

    async def __init__(self, settings: Settings, model: str, draft: str | None) -> None:  # type: ignore[misc]  # Ray awaits it
        """Returns when the model is loaded, so that no request is sent here before."""
        configure_logging(settings.log_level, as_json=settings.log_json)
        path = await _folder(model, settings)
        draft = None if draft is None else str(await asyncio.to_thread(resolve, draft))
        super().__init__(make_engine(settings, path, None, draft, None))
        await asyncio.to_thread(check_memory, settings, path, draft)
        await self.start()

    async def check_health(self) -> None:
        """Raises `LoadError` if the engine has failed for good: Ray then starts another replica."""
        if self.is_failed:
            raise LoadError("the model cannot be loaded here")

    async def __del__(self) -> None:
        await self.stop()


@serve.deployment(name=GATEWAY, logging_config=LOGGING)
@serve.ingress()
class Gateway:
    """The server, over engines that are replicas elsewhere."""

    async def __init__(  # type: ignore[misc]  # Ray awaits it
        self,
        settings: Settings,
        models: Mapping[str, str],
        engines: Mapping[str, DeploymentHandle[Any]],
    ) -> None:
        configure_logging(settings.log_level, as_json=settings.log_json)
        folders = {name: await _folder(model, settings) for name, model in models.items()}
        handles: dict[Path, deque[DeploymentHandle[Any]]] = {}
        for name, handle in engines.items():
            handles.setdefault(folders[name], deque()).append(handle)

        def make(_settings: Settings, path: Path, *_others: object) -> RayServeEngine:
            return RayServeEngine(Replicas(handles[path].popleft()))  # models come in order

        # memory is looked at where it is needed: by the replicas
        settings = replace(settings, check_memory=False)
        self._application = build(settings, folders, make_engine=make, make_runs=SharedRuns)
        self._runs = cast("SharedRuns", self._application.services.runs)
        # of this application, whatever name `serve run` or a config gave it
        self._runs.others = OtherGateways(serve.get_deployment_handle(GATEWAY))
        self._running = contextlib.AsyncExitStack()
        loading = await self._running.enter_async_context(self._application.running())
        # Ray sends nobody here before; whoever has to wait for longer is told how far it has come
        await asyncio.wait((loading,), timeout=_LOAD_S)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return self._application.asgi

    async def let_go(self, run_id: str) -> bool:
        """Another gateway is asked for a run that may live here."""
        return await self._runs.let_go(run_id)

    async def end(self, run_id: str) -> None:
        """Another gateway is asked to end a run that may live here."""
        await self._runs.end(run_id)

    async def __del__(self) -> None:
        """What is live still goes on at another gateway, or at the next one."""
        await self._runs.drain(0)
        await self._running.aclose()


def application(settings: Settings, models: Mapping[str, str]) -> serve.Application:
    """Gateways and engine replicas for models by their names; nothing is started yet."""
    # what all gateways together let in; more would wait in Ray, where nobody can cancel it
    max_requests = settings.ray_gateways * (settings.max_num_seqs + settings.max_queue)
    engines = {
        name: EngineReplica.options(  # type: ignore[attr-defined]
            name=engine_name(index),
            num_replicas=settings.ray_replicas,
            # Ray's default is 5: the engine's batch would never fill
            max_ongoing_requests=max_requests + _CONTROL_CALLS,
            # Ray's default is no limit: requests would wait for ever without a replica
            max_queued_requests=max_requests,
            # Ray's default looks every 10 s: so long nobody would start a new replica
            health_check_period_s=_HEALTH_S,
            graceful_shutdown_timeout_s=settings.drain_s + _CLOSE_S,
            # an engine takes the cores that there are; a deployment's config may say otherwise
            ray_actor_options={"num_cpus": 0},
        ).bind(settings, model, settings.speculative_model if index == 0 else None)
        for index, (name, model) in enumerate(models.items())
    }
    app: serve.Application = Gateway.options(  # type: ignore[attr-defined]
        num_replicas=settings.ray_gateways,
        # admission is ours, with 503 and Retry-After; Ray's default of 5 would queue streams
        max_ongoing_requests=2 * max_requests + _CONTROL_CALLS,
        max_queued_requests=max_requests,
        health_check_period_s=_HEALTH_S,
        # Ray's default cuts streams after 20 s
        graceful_shutdown_timeout_s=settings.drain_s + _CLOSE_S,
        ray_actor_options={"num_cpus": 0},
    ).bind(replace(settings, models=tuple(models)), models, engines)
    return app


def check_loaded(index: int) -> None:
    """Raises `LoadError` if a replica of this model could not load it."""
    handle = serve.get_deployment_handle(engine_name(index), APP_NAME)
    handle._init(_run_router_in_separate_loop=True)  # there is no event loop here
    answers = handle.broadcast("report").results(timeout_s=_REPORT_S, return_exceptions=True)
    for answer in answers:
        status = None if isinstance(answer, BaseException) else decode_report(answer).status
        if status is not None and status.state is EngineState.FAILED:
            raise LoadError(status.error)


def http_options(settings: Settings) -> HTTPOptions:
    """Where Ray's proxy listens."""
    return HTTPOptions(
        # in a cluster Ray's default is every interface
        host=settings.host,
        port=settings.port,
        # a stream may take as long as it likes; silence is what counts, and that is `sse_ping_s`
        request_timeout_s=None,
    )


#: One address, on the machine that was asked to serve; Ray's default opens a port on every node.
PROXY_LOCATION = ProxyLocation.HeadOnly
