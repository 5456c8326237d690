"""Makes models and adapters of folders."""

from __future__ import annotations

import asyncio
from pathlib import Path

from streamwell.core.engine_state import EngineStats
from streamwell.core.errors import LoadError
from streamwell.engine import native
from streamwell.engine.launch import EngineProcess
from streamwell.models import catalog
from streamwell.models.memory import check_fits
from streamwell.models.outline import describe_folder, size_in_memory, size_on_disk
from streamwell.models.resolve import default_sampling
from streamwell.service.gathering import Gathering
from streamwell.service.models import ModelTable, Served
from streamwell.service.served_adapter import ServedAdapter
from streamwell.service.served_model import ModelFacts, ServedModel
from streamwell.settings import Settings
from streamwell.text.prompt import PromptEncoder
from streamwell.wiring.engines import MakeEngine

_MIB = 1 << 20


class ModelMaker:
    """Makes models of folders: those given at the start, and those that may be loaded later."""

    def __init__(
        self, settings: Settings, first: EngineProcess | None, make_engine: MakeEngine
    ) -> None:
        self._settings = settings
        self._first = first
        self._make_engine = make_engine
        self._draft = settings.speculative_model
        self._trace = settings.trace
        #: A load takes all cores, but on Ray, where it is the replicas'.
        self._turn = None if settings.ray else asyncio.Lock()

    def model(self, names: tuple[str, ...], path: Path, *, is_at_start: bool) -> ServedModel:
        """A model that is not loaded yet."""
        settings, facts = self._settings, _facts(path)
        first, self._first = self._first, None
        draft, self._draft = self._draft, None
        trace, self._trace = self._trace, None

        def load_encoder() -> PromptEncoder:
            return PromptEncoder.load(path, trust_remote_code=settings.trust_remote_code)

        return ServedModel(
            names,
            self._make_engine(settings, path, first, draft, trace),
            load_encoder,
            default_sampling(path),
            facts=facts,
            is_at_start=is_at_start,
            turn=self._turn or asyncio.Lock(),
            gathering=Gathering(settings.max_num_seqs, settings.batch_wait_timeout_s),
            check_memory=lambda: check_memory(settings, path, draft),
        )

    def find(self, name: str, base: ServedModel) -> Served | None:
        """A model in the folder of models, or an adapter there, which is taken to be of `base`."""
        models_dir = self._settings.models_dir
        path = catalog.find(models_dir, name) if models_dir else None
        if path is None:
            return None
        if catalog.is_adapter(path):
            return adapter_of(name, base, path, is_at_start=False)
        return self.model((name,), path, is_at_start=False)


def check_memory(settings: Settings, path: Path, draft: str | None) -> None:
    """Raises `NotEnoughMemory`; of a damaged folder the engine will say more."""
    if not settings.check_memory or settings.engine == "scripted":
        return
    try:
        is_native = _may_be_native(settings)
        keeps_rounding = is_native and settings.quantization == "auto"
        is_coded = is_native and settings.quantization in ("auto", "none")
        weight_bytes = sum(
            size_in_memory(each, keeps_rounding=keeps_rounding, is_coded=is_coded)
            for each in [path, *([Path(draft)] if draft else [])]
        )
    except (LoadError, OSError):
        return
    check_fits(weight_bytes, settings.quantization, _MIB * (settings.kv_cache_mib or 0))


def _may_be_native(settings: Settings) -> bool:
    """Whether the native helper may run a model: only there weights stay rounded, or are coded."""
    may_run = settings.model_impl in ("auto", "native") and not settings.compile
    is_usual = settings.block_size == native.BLOCK_SIZE and settings.device in ("auto", "cpu")
    return may_run and is_usual and native.is_compiled()


def adapter_of(name: str, base: ServedModel, path: Path, *, is_at_start: bool) -> ServedAdapter:
    facts = ModelFacts(path=str(path), size_bytes=catalog.adapter_size(path))
    return ServedAdapter(name, base, facts, is_at_start=is_at_start)


def engine_stats(models: ModelTable) -> dict[str, EngineStats]:
    """By the names of models; adapters have no engines of their own."""
    with_engines = [model for model in models.models if isinstance(model, ServedModel)]
    return {model.names[0]: model.engine.stats() for model in with_engines}


def _facts(path: Path) -> ModelFacts:
    """What a folder says of itself; if it is damaged, nothing: its load will tell why."""
    try:
        outline, size_bytes = describe_folder(path), size_on_disk(path)
    except (LoadError, OSError):
        return ModelFacts(path=str(path))
    return ModelFacts(
        path=str(path),
        family=outline.family,
        size_bytes=size_bytes,
        context_length=outline.context,
    )
