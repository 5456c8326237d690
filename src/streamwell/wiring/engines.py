"""Makes the engines that the settings ask for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from streamwell.backends.programs import PROGRAMS
from streamwell.backends.scripted import ScriptedEngine
from streamwell.core.ports import Engine
from streamwell.engine.client import ProcessEngine
from streamwell.engine.launch import EngineProcess, launch
from streamwell.engine.messages import EngineConfig
from streamwell.settings import Settings

_MIB = 1 << 20

#: `make_engine`, or something in its place.
MakeEngine = Callable[[Settings, Path, EngineProcess | None, str | None, Path | None], Engine]


def make_engine(
    settings: Settings,
    model_path: Path,
    first: EngineProcess | None,
    draft: str | None,
    trace: Path | None,
) -> Engine:
    """The engine of a model folder, not started.

    `first` is a process that has been launched already; `draft` the folder of a draft model,
    `trace` the file for what its steps compute.
    """
    if settings.engine == "scripted":
        return _scripted_engine(settings)
    return ProcessEngine(
        engine_config(settings, model_path, draft, trace),
        hang_timeout_s=settings.engine_hang_s,
        first=first,
        launch=partial(launch, PROGRAMS[settings.engine]),
    )


def engine_config(
    settings: Settings, model_path: Path, draft: str | None, trace: Path | None
) -> EngineConfig:
    """What its process is told; arguments as those of `make_engine`."""
    kv_cache_bytes = None if settings.kv_cache_mib is None else settings.kv_cache_mib * _MIB
    return EngineConfig(
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
        cuda_graphs=settings.cuda_graphs,
        step_stretch=settings.step_stretch,
        short_step_s=settings.short_step_s,
        enable_prefix_caching=settings.enable_prefix_caching,
        speculative_ngram=settings.speculative_ngram,
        speculative_model=draft,
        speculative_tokens=settings.speculative_tokens,
        enable_lora=settings.has_adapters,
        max_loras=settings.max_loras,
        max_lora_rank=settings.max_lora_rank,
        trace_path=None if trace is None else str(trace),
    )


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
