"""Loads a model folder into a runner: path, dtype, device, KV budget, end-of-sequence ids.

What runs it is decided in `assemble`. A folder is looked at before anything of it is loaded, and
nothing in it is executed unless it is trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from streamwell.core.engine_state import EngineInfo
from streamwell.core.errors import LoadError
from streamwell.engine.assemble import assemble
from streamwell.engine.assembled import Assembled
from streamwell.engine.cache_size import CacheSize
from streamwell.engine.checkpoint import Report
from streamwell.engine.draft_loader import load_draft
from streamwell.engine.draft_model import ModelDrafter
from streamwell.engine.families import max_positions
from streamwell.engine.folder import BROKEN, eos_token_ids, text_config, unserved
from streamwell.engine.lora.table import AdapterTable
from streamwell.engine.messages import DEFAULT_MAX_MODEL_LEN, AddAdapter, EngineConfig
from streamwell.engine.model_runner import Model, ModelRunner
from streamwell.engine.native.decoder import NativeDecoder
from streamwell.engine.native.memory import prefault
from streamwell.engine.placement import default_kv_cache_bytes, device_of
from streamwell.engine.sampler import Sampler
from streamwell.engine.seq2seq.families import is_encoder_decoder
from streamwell.engine.seq2seq.native_model import NativeSeq2Seq
from streamwell.models.cores import num_cores
from streamwell.models.gguf_folder import given
from streamwell.models.inspection import inspect_model
from streamwell.models.memory import available_bytes
from streamwell.models.outline import size_on_disk
from streamwell.models.small_files import read_object

#: Weights below this are computed by a single thread when nothing is said.
SMALL_MODEL_BYTES = 64 << 20
#: The same for input and output of an encoder-decoder that has no limit built in, as T5.
DEFAULT_MAX_INPUT_LEN = 2048


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, and what the scheduler must know of it."""

    runner: ModelRunner
    info: EngineInfo
    eos_token_ids: frozenset[int]
    #: How many sequences may run at once.
    max_num_seqs: int
    #: What makes steps faster if it is done before them, some milliseconds at a time.
    idle_work: Iterator[None]
    #: Whether it keeps a state of each, so that none can begin with what is cached of another.
    keeps_states: bool = False
    #: Guesses ahead, if there is a draft model.
    drafter: ModelDrafter | None = None
    #: Where adapters are added, if it may have some.
    adapters: AdapterTable[Any] | None = None


def load(config: EngineConfig, report: Report) -> LoadedModel:
    """Load the model that `config` names; `report(stage, progress)` is told on the way.

    Raises:
        LoadError: with a message for the person who started the server.
    """
    try:
        return _load(config, report)
    except LoadError:
        raise
    except BROKEN as error:
        raise LoadError(f"cannot load {given(Path(config.model_path))}: {error!r}") from error


def _load(config: EngineConfig, report: Report) -> LoadedModel:
    path = Path(config.model_path)
    inspect_model(path, trust_remote_code=config.trust_remote_code)
    torch.set_num_threads(config.num_threads or _default_threads(path))
    model_config = read_object(path / "config.json")
    report("loading weights", 0.1)
    max_model_len = _max_model_len(config, model_config)
    draft = load_draft(config, model_config, max_model_len, report)
    drafted_bytes = draft.model.bytes_per_token if draft else 0
    num_contexts = 2 if is_encoder_decoder(model_config) else 1
    is_in_main_memory = device_of(config.device).type == "cpu"
    cache = CacheSize(config, max_model_len, num_contexts, drafted_bytes, is_in_main_memory)
    assembled = assemble(config, path, model_config, max_model_len, report, cache.check)
    model = assembled.model
    default_bytes, state_bytes = default_kv_cache_bytes(model.device), assembled.state_bytes
    num_seqs = cache.num_seqs(state_bytes, default_bytes)
    num_blocks = cache.num_blocks(model.bytes_per_token, default_bytes, num_seqs * state_bytes)
    model.allocate(num_blocks)
    eos = eos_token_ids(path, model_config, model.vocab_size)
    warnings = (
        *assembled.warnings,
        *unserved(path, model_config, bans_tokens=bool(assembled.start_ids)),
        *_draft_warnings(draft),
        *_state_warnings(config, num_seqs, state_bytes),
        *_restore(config.adapters, assembled.adapters),
    )
    info = _info(config, assembled, max_model_len, num_blocks, warnings)
    sampler = Sampler(eos)
    drafter = _drafter(draft, sampler, info)
    return LoadedModel(
        runner=ModelRunner(model, sampler),
        info=info,
        eos_token_ids=eos,
        max_num_seqs=num_seqs,
        idle_work=_prefault(path, model),
        keeps_states=state_bytes > 0,
        drafter=drafter,
        adapters=assembled.adapters,
    )


def _prefault(path: Path, model: Model) -> Iterator[None]:
    """What takes memory for the cache, step by step: else the first prompts would wait for it.

    As much as the files of weights have, so that what is small stays small, but at most a quarter
    of what is free now.
    """
    if not isinstance(model, NativeDecoder | NativeSeq2Seq):
        return iter(())
    return prefault(model.cache, min(size_on_disk(path), available_bytes() // 4))


def _info(
    config: EngineConfig,
    assembled: Assembled,
    max_model_len: int,
    num_blocks: int,
    warnings: tuple[str, ...],
) -> EngineInfo:
    model, start_ids = assembled.model, assembled.start_ids
    return EngineInfo(
        max_model_len=max_model_len,
        vocab_size=model.vocab_size,
        num_blocks=num_blocks,
        block_size=config.block_size,
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(model.device),
        implementation=assembled.implementation,
        quantization=assembled.quantization,
        warnings=warnings,
        start_ids=start_ids,
        max_input_len=max_model_len if start_ids else None,
    )


def _drafter(draft: Assembled | None, sampler: Sampler, info: EngineInfo) -> ModelDrafter | None:
    if draft is None:
        return None
    draft.model.allocate(info.num_blocks)  # under the same ids
    return ModelDrafter(draft.model, sampler, info.vocab_size)


def _draft_warnings(draft: Assembled | None) -> list[str]:
    return [f"draft model: {warning}" for warning in draft.warnings] if draft else []


def _state_warnings(config: EngineConfig, num_seqs: int, state_bytes: int) -> list[str]:
    if num_seqs == config.max_num_seqs:
        return []
    return [
        f"at most {num_seqs} sequences run at once: each keeps a state of "
        f"{-(-state_bytes >> 20)} MiB, and all states have half of what --kv-cache-mib says"
    ]


def _restore(known: Iterable[AddAdapter], adapters: AdapterTable[Any] | None) -> list[str]:
    """Load the adapters that an engine before this one had; those that are lost are warnings."""
    if adapters is None:
        return []
    lost = (adapters.restore(each.number, each.name, each.path) for each in known)
    return [warning for warning in lost if warning is not None]


def _default_threads(path: Path) -> int:
    """One per core; one in all for a model so small that waiting for each other costs more."""
    is_small = size_on_disk(path) < SMALL_MODEL_BYTES
    return 1 if is_small else min(torch.get_num_threads(), num_cores())


def _max_model_len(config: EngineConfig, model_config: Mapping[str, Any]) -> int:
    trained = max_positions(text_config(model_config)) or 0
    if config.max_model_len is None:
        is_seq2seq = is_encoder_decoder(model_config)
        default = DEFAULT_MAX_INPUT_LEN if is_seq2seq else DEFAULT_MAX_MODEL_LEN
        return min(trained or default, default)
    if trained and config.max_model_len > trained:
        raise LoadError(f"--max-model-len {config.max_model_len} is over the model's {trained}")
    return config.max_model_len
