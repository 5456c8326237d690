"""The composition root: the only place that names concrete classes together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog
from starlette.types import ASGIApp

from streamwell import __version__
from streamwell.core.errors import InvalidRequest
from streamwell.core.ports import Store
from streamwell.engine.launch import EngineProcess
from streamwell.models import catalog
from streamwell.server.app import create_app
from streamwell.server.convert.dialects import MODEL_NAME, OPENAI, TRANSFORMERS_OPENAI_API
from streamwell.server.deps import Services, UnknownFields
from streamwell.server.keys import KeyRing
from streamwell.server.presets import load_presets
from streamwell.service.admission import Admission
from streamwell.service.conversations import Conversations
from streamwell.service.models import ModelTable, Served
from streamwell.service.run_log import RunLog
from streamwell.service.runs import RunService
from streamwell.settings import Settings, default_data_dir
from streamwell.store.choose import make_store
from streamwell.telemetry import Metrics
from streamwell.wiring.chores import load_all, recover, sweep, unload_idle
from streamwell.wiring.engines import MakeEngine, make_engine
from streamwell.wiring.models import ModelMaker, adapter_of, engine_stats

log = structlog.get_logger()

_MIB = 1 << 20
#: Who guesses keys may try thousands a second.
SAFE_KEY_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Application:
    """A server, wired but not started."""

    asgi: ASGIApp
    services: Services
    #: Those that are loaded at the start.
    models: tuple[Served, ...]
    run_log: RunLog
    store: Store
    settings: Settings

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """Open the log and load the models in the background; close both in the end.

        Yields the task that loads; it raises `LoadError` when one of them cannot be served.

        Raises:
            StoreFailed: the log cannot be opened.
        """
        loading = asyncio.create_task(load_all(self.models), name="load models")
        models, idle_s = self.services.models, self.settings.idle_unload_s
        chores: list[asyncio.Task[None]] = []
        try:
            await self.run_log.open()
            await self.services.runs.recover()
            chores = [
                asyncio.create_task(sweep(self.store, self.settings), name="retention"),
                asyncio.create_task(recover(self.services.runs), name="recovery"),
                asyncio.create_task(unload_idle(models, idle_s), name="idle models"),
            ]
            yield loading
        finally:
            for task in (loading, *chores):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await asyncio.gather(*(model.stop() for model in models.models))
            await self.run_log.close()


def build(
    settings: Settings,
    folders: Mapping[str, Path],
    first: EngineProcess | None = None,
    make_engine: MakeEngine = make_engine,
    make_runs: type[RunService] = RunService,
) -> Application:
    """Wire a server for model folders by their names; nothing is loaded or opened yet.

    `first` is an engine process that has been launched already.
    """
    if settings.trust_remote_code:
        log.warning("code in model folders may be run, with all the rights of this server")
    if any(len(key) < SAFE_KEY_LENGTH for key in settings.api_key + settings.admin_key):
        log.warning("a key is so short that it can be guessed", safe_length=SAFE_KEY_LENGTH)
    data_dir = settings.data_dir or default_data_dir()
    _check_folders(settings, data_dir)
    table = _make_table(settings, folders, ModelMaker(settings, first, make_engine))
    at_start = tuple(model for model in table.models if model.is_at_start)
    metrics = Metrics(__version__, lambda: engine_stats(table))
    store = make_store(settings.durability, data_dir, settings.database_url)
    run_log = RunLog(store)
    admission = Admission(settings.max_num_seqs + settings.max_queue)
    runs = make_runs(table, run_log, admission, metrics, grace_s=settings.resume_grace_s)
    services = _make_services(settings, table, runs, store, metrics)
    asgi = create_app(
        services,
        max_body_bytes=settings.max_body_mib * _MIB,
        allowed_hosts=settings.allowed_hosts if settings.checks_hosts else None,
        cors_origins=settings.cors_origin,
    )
    return Application(asgi, services, at_start, run_log, store, settings)


def _make_services(
    settings: Settings, table: ModelTable, runs: RunService, store: Store, metrics: Metrics
) -> Services:
    return Services(
        models=table,
        runs=runs,
        conversations=Conversations(store, runs),
        metrics=metrics,
        keys=KeyRing(settings.api_key, settings.admin_key),
        unknown_fields=UnknownFields(),
        presets=load_presets(settings.presets_dir, settings.prompt_preset),
        ping_s=settings.sse_ping_s,
        version=__version__,
        chat_dialect=OPENAI if settings.compat is None else TRANSFORMERS_OPENAI_API,
    )


def _make_table(settings: Settings, folders: Mapping[str, Path], make: ModelMaker) -> ModelTable:
    """Models and adapters of the start, and those that may be loaded later."""
    names = [settings.served_model_name or (name,) for name in folders]
    if settings.compat is not None and all(MODEL_NAME not in others for others in names):
        names[0] = (*names[0], MODEL_NAME)
    models_at_start = [
        make.model(names_of_one, path, is_at_start=True)
        for names_of_one, path in zip(names, folders.values(), strict=True)
    ]
    base = models_at_start[0]
    adapters = [
        adapter_of(name, base, path, is_at_start=True) for name, path in settings.adapters.items()
    ]
    table = ModelTable([*models_at_start, *adapters], lambda name: make.find(name, base))
    for name in catalog.names(settings.models_dir) if settings.models_dir else ():
        table.add_found(name)
    return table


def _is_there(folder: Path, param: str) -> bool:
    try:
        return folder.exists()
    except OSError as error:  # it is in a folder that this user may not look into
        flag = param.replace("_", "-")
        raise InvalidRequest(f"--{flag} {folder}: {error.strerror}", param) from None


def _check_folders(settings: Settings, data_dir: Path) -> None:
    """Raises `InvalidRequest` for what cannot be used, before a model is loaded for nothing."""
    if _is_there(data_dir, "data_dir") and not data_dir.is_dir():
        raise InvalidRequest(f"--data-dir {data_dir} is no folder", "data_dir")
    models_dir = settings.models_dir
    if models_dir is not None and not (_is_there(models_dir, "models_dir") and models_dir.is_dir()):
        raise InvalidRequest(f"--models-dir {models_dir} is no folder", "models_dir")
    if settings.trace is not None:
        try:
            settings.trace.open("a").close()
        except OSError as error:
            raise InvalidRequest(f"--trace cannot be written: {error}", "trace") from None
    for name, path in settings.adapters.items():
        if not (_is_there(path, "lora") and path.is_dir()):
            raise InvalidRequest(f"--lora {name}={path}: there is no such folder", "lora")
