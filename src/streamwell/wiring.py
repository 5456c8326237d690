"""The composition root: the only file that names concrete classes together."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from starlette.types import ASGIApp

from streamwell import __version__
from streamwell.backends.scripted import ScriptedEngine
from streamwell.core.errors import StoreFailed
from streamwell.core.ports import Engine
from streamwell.engine.client import ProcessEngine
from streamwell.engine.launch import EngineProcess
from streamwell.engine.messages import EngineConfig
from streamwell.models.resolve import default_sampling
from streamwell.server.app import create_app
from streamwell.server.deps import Services, UnknownFields
from streamwell.server.keys import KeyRing
from streamwell.service.admission import Admission
from streamwell.service.conversations import Conversations
from streamwell.service.models import ModelTable, ServedModel
from streamwell.service.run_log import RunLog
from streamwell.service.runs import RunService
from streamwell.settings import Settings, default_data_dir
from streamwell.store.choose import make_store
from streamwell.telemetry import Metrics
from streamwell.text.prompt import PromptEncoder

log = structlog.get_logger()

_MIB = 1 << 20
_RETENTION_SWEEP_S = 60.0
_RECOVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Application:
    """A server, wired but not started."""

    asgi: ASGIApp
    services: Services
    model: ServedModel
    run_log: RunLog
    settings: Settings

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """Open the log and load the model in the background; close both in the end.

        Yields the task that loads; it raises `LoadError` when the model cannot be served.

        Raises:
            StoreFailed: the log cannot be opened.
        """
        loading = asyncio.create_task(self.model.load(), name="load model")
        chores: list[asyncio.Task[None]] = []
        try:
            await self.run_log.open()
            await self.services.runs.recover()
            chores = [
                asyncio.create_task(_sweep(self.run_log, self.settings), name="retention"),
                asyncio.create_task(_recover(self.services.runs), name="recovery"),
            ]
            yield loading
        finally:
            for task in (loading, *chores):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await self.model.engine.stop()
            await self.run_log.close()


def build(settings: Settings, model_path: Path, first: EngineProcess | None) -> Application:
    """Wire a server for a model folder; nothing is loaded or opened yet.

    `first` is an engine process that has been launched already.
    """
    names = settings.served_model_name or (settings.model,)
    engine = _engine(settings, model_path, first)
    model = ServedModel(
        names,
        engine,
        lambda: PromptEncoder.load(model_path, trust_remote_code=settings.trust_remote_code),
        default_sampling(model_path),
    )
    models = ModelTable([model])
    metrics = Metrics(__version__, engine.stats)
    data_dir = settings.data_dir or default_data_dir()
    store = make_store(settings.durability, data_dir, settings.database_url)
    run_log = RunLog(store)
    admission = Admission(settings.max_num_seqs + settings.max_queue)
    runs = RunService(models, run_log, admission, metrics, grace_s=settings.resume_grace_s)
    services = Services(
        models=models,
        runs=runs,
        conversations=Conversations(store, runs),
        metrics=metrics,
        keys=KeyRing(settings.api_key),
        unknown_fields=UnknownFields(),
        ping_s=settings.sse_ping_s,
        version=__version__,
    )

    return Application(
        asgi=create_app(
            services,
            max_body_bytes=settings.max_body_mib * _MIB,
            allowed_hosts=settings.allowed_hosts if settings.checks_hosts else None,
        ),
        services=services,
        model=model,
        run_log=run_log,
        settings=settings,
    )


async def _recover(runs: RunService) -> None:
    """Go on with what nobody drives: another server has gone, or the store had failed us."""
    while True:
        await asyncio.sleep(_RECOVERY_S)
        if not runs.is_draining:
            with contextlib.suppress(StoreFailed):
                await runs.recover()


async def _sweep(run_log: RunLog, settings: Settings) -> None:
    """Delete ended runs that are too old or too many, and fold the others, now and then."""
    while True:
        now_s = time.time()
        try:
            deleted = await run_log.delete_old(
                ended_before_s=now_s - 3600 * settings.retention_h,
                unstored_before_s=now_s - settings.resume_grace_s,
                stored_before_s=now_s - 3600 * settings.retention_stored_h,
            )
            deleted += await run_log.delete_oldest(max_bytes=settings.retention_mib * _MIB)
            # not sooner: those who may still resume a run read it from a place on
            folded = await run_log.fold(ended_before_s=now_s - settings.resume_grace_s)
        except StoreFailed as error:
            log.warning("old runs could not be deleted or folded", error=str(error))
        else:
            log.debug("old runs deleted and folded", num_deleted=deleted, num_folded=folded)
        await asyncio.sleep(_RETENTION_SWEEP_S)


def _engine(settings: Settings, model_path: Path, first: EngineProcess | None) -> Engine:
    if settings.engine == "scripted":
        return _scripted_engine(settings)
    if settings.trust_remote_code:
        log.warning("code in the model's folder may be run, with all the rights of this server")
    kv_cache_bytes = None if settings.kv_cache_mib is None else settings.kv_cache_mib * _MIB
    config = EngineConfig(
        model_path=str(model_path),
        device=settings.device,
        dtype=settings.dtype,
        max_model_len=settings.max_model_len,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        kv_cache_bytes=kv_cache_bytes,
        block_size=settings.block_size,
        num_threads=settings.num_threads,
        model_impl=settings.model_impl,
        quantization=settings.quantization,
        trust_remote_code=settings.trust_remote_code,
        compile=settings.compile,
        step_stretch=settings.step_stretch,
        enable_prefix_caching=settings.enable_prefix_caching,
        speculative_ngram=settings.speculative_ngram,
    )
    return ProcessEngine(config, hang_timeout_s=settings.engine_hang_s, first=first)


def _scripted_engine(settings: Settings) -> ScriptedEngine:
    """Printable one-character tokens, in an order that depends on prompt, seed and index."""
    first, count = 36, 90

    def script(prompt_ids: Sequence[int], seed: int, index: int) -> int:
        return first + (sum(prompt_ids) + 31 * seed + 7 * index + index * index) % count

    return ScriptedEngine(
        script,
        vocab_size=sys.maxsize,
        max_model_len=settings.max_model_len or 4096,
        load_s=settings.scripted_load_s,
        step_s=settings.scripted_step_s,
        max_num_seqs=settings.max_num_seqs,
    )
