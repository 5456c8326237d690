"""Loads a model folder into a runner: dtype, device, KV budget, end-of-sequence ids.

With `attention`, the only place that knows Transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from streamwell.core.errors import LoadError
from streamwell.core.types import EngineInfo
from streamwell.engine.attention import (
    ATTENTION_NAME,
    LayerShape,
    PagedCache,
    ShapeProbe,
    attention_forward,
)
from streamwell.engine.messages import EngineConfig
from streamwell.engine.model_runner import ModelRunner
from streamwell.engine.sampler import Sampler

Report = Callable[[str, float], None]

#: What the KV cache takes at most when nothing is said, in bytes.
DEFAULT_KV_CACHE_BYTES = 1 << 30
#: A context longer than this is used only when asked for.
DEFAULT_MAX_MODEL_LEN = 8192


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, and what the scheduler must know of it."""

    runner: ModelRunner
    info: EngineInfo
    eos_token_ids: frozenset[int]


def load(config: EngineConfig, report: Report) -> LoadedModel:
    """Load the model that `config` names; `report(stage, progress)` is told on the way.

    Raises:
        LoadError: with a message for the person who started the server.
    """
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    device = _device(config.device)
    report("loading weights", 0.2)
    model = _load_transformers(Path(config.model_path), _dtype(config.dtype), device)
    report("measuring", 0.9)
    shapes = _probe(model)
    max_model_len = _max_model_len(config, model.config)
    num_blocks = _num_blocks(config, shapes, model.dtype, max_model_len)
    cache = PagedCache(shapes, num_blocks, config.block_size, model.dtype, device)
    eos = _eos_token_ids(model)
    runner = ModelRunner(model, cache, Sampler(eos))
    info = EngineInfo(
        max_model_len=max_model_len,
        vocab_size=runner.vocab_size,
        num_blocks=num_blocks,
        block_size=config.block_size,
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(device),
    )
    return LoadedModel(runner, info, eos)


def _load_transformers(path: Path, dtype: torch.dtype | None, device: torch.device) -> Any:  # noqa: ANN401
    from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

    AttentionInterface.register(ATTENTION_NAME, attention_forward)
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(
            path,
            config=config,
            dtype=dtype or _auto_dtype(getattr(config, "dtype", None), device),
            attn_implementation=ATTENTION_NAME,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    except (OSError, ValueError) as error:
        raise LoadError(f"cannot load {path}: {error}") from error
    return model.eval().to(device)


def _device(name: str) -> torch.device:
    if name != "auto":
        return torch.device(name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _dtype(name: str) -> torch.dtype | None:
    return None if name == "auto" else {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def _auto_dtype(saved: torch.dtype | None, device: torch.device) -> torch.dtype:
    """The dtype of the weights as saved, or the nearest one that this device computes fast."""
    if device.type != "cpu":
        return saved or torch.float32
    is_half = saved in (torch.float16, torch.bfloat16)
    # float16 has no fast path on any CPU, bfloat16 only where the hardware has it
    has_bf16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.bfloat16 if is_half and has_bf16 else torch.float32


@torch.inference_mode()
def _probe(model: Any) -> list[LayerShape]:  # noqa: ANN401 - Transformers is not typed
    """Run two tokens through the model and note what every layer would cache.

    Raises:
        LoadError: the model does not route its attention through `AttentionInterface`.
    """
    probe = ShapeProbe()
    ids = torch.zeros((1, 2), dtype=torch.int64, device=model.device)
    try:
        model(
            input_ids=ids,
            position_ids=torch.arange(2)[None].to(ids),
            use_cache=False,
            attention=probe,
        )
    except (TypeError, NotImplementedError) as error:
        raise LoadError(f"this architecture cannot be served yet: {error}") from error
    expected = model.config.get_text_config().num_hidden_layers
    if sorted(probe.shapes) != list(range(expected)):
        raise LoadError("this architecture cannot be served yet: not all layers are attention")
    return [probe.shapes[layer] for layer in range(expected)]


def _max_model_len(config: EngineConfig, model_config: Any) -> int:  # noqa: ANN401
    trained: int = getattr(model_config.get_text_config(), "max_position_embeddings", 0)
    if config.max_model_len is None:
        return min(trained or DEFAULT_MAX_MODEL_LEN, DEFAULT_MAX_MODEL_LEN)
    if trained and config.max_model_len > trained:
        raise LoadError(f"--max-model-len {config.max_model_len} is over the model's {trained}")
    return config.max_model_len


def _num_blocks(
    config: EngineConfig, shapes: list[LayerShape], dtype: torch.dtype, max_model_len: int
) -> int:
    block_bytes = PagedCache.bytes_per_token(shapes, dtype) * config.block_size
    blocks_per_seq = -(-max_model_len // config.block_size)
    wanted = config.max_num_seqs * blocks_per_seq
    if config.kv_cache_bytes is None:
        return max(blocks_per_seq, min(wanted, DEFAULT_KV_CACHE_BYTES // block_bytes))
    num_blocks = config.kv_cache_bytes // block_bytes
    if num_blocks < blocks_per_seq:
        raise LoadError(
            f"a KV cache of {config.kv_cache_bytes} bytes cannot hold one sequence of "
            f"{max_model_len} tokens ({blocks_per_seq * block_bytes} bytes); "
            "give it more, or lower --max-model-len"
        )
    return min(num_blocks, wanted)


def _eos_token_ids(model: Any) -> frozenset[int]:  # noqa: ANN401
    ids = model.generation_config.eos_token_id
    if ids is None:
        ids = model.config.get_text_config().eos_token_id
    if ids is None:
        return frozenset()
    return frozenset(ids if isinstance(ids, list) else [ids])
