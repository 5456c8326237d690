"""What a model is put together from, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

from streamwell.engine.checkpoint import Report
from streamwell.engine.lora.table import AdapterTable
from streamwell.engine.messages import EngineConfig
from streamwell.engine.model_runner import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A folder, and how its model is to be put together."""

    config: EngineConfig
    path: Path
    #: `config.json`.
    model_config: Mapping[str, Any]
    #: Tokens of a sequence, at most.
    max_model_len: int
    #: Where it computes, and in what.
    device: torch.device
    dtype: torch.dtype
    #: Whether weights that are rounded as they are saved stay so.
    keeps_rounding: bool
    report: Report
    #: Told the bytes that a token takes in the cache of a decoder of ours, before its weights are
    #: read; raises `LoadError`.
    check_cache: Callable[[int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """A model without a cache yet, and what is to be said of it."""

    model: Model
    #: `native/<instruction set>`, `torch` or `transformers`.
    implementation: str
    #: What its weights are rounded to.
    quantization: str = "none"
    #: For the person who started the server.
    warnings: tuple[str, ...] = ()
    #: What an encoder-decoder's answers begin with; empty for decoders.
    start_ids: tuple[int, ...] = ()
    #: Bytes of what it keeps of each sequence beside the cache, if it does: a state, which cannot
    #: be shared or taken back.
    state_bytes: int = 0
    #: Where adapters are added, if it may have some.
    adapters: AdapterTable[Any] | None = None


def without_adapters(config: EngineConfig) -> tuple[EngineConfig, tuple[str, ...]]:
    """For a model that takes none, while others of the server may; and what is to be said."""
    if not config.enable_lora:
        return config, ()
    told = "adapters cannot be added to this model: they work with our decoders only"
    return msgspec.structs.replace(config, enable_lora=False), (told,)
