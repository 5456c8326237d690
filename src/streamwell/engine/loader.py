"""Loads a model folder into a runner: path, dtype, device, KV budget, end-of-sequence ids.

A family that `families` knows completely is assembled from its safetensors files as a lean
decoder; everything else is loaded by Transformers. Nothing in a model folder is executed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from streamwell.core.errors import LoadError
from streamwell.core.types import EngineInfo
from streamwell.engine.attention import PagedCache, sequence_attention
from streamwell.engine.block import LeanDecoder
from streamwell.engine.families import DecoderSpec, describe
from streamwell.engine.messages import EngineConfig
from streamwell.engine.model_runner import Decoder, ModelRunner
from streamwell.engine.sampler import Sampler

Report = Callable[[str, float], None]

#: What the KV cache takes at most when nothing is said, in bytes.
DEFAULT_KV_CACHE_BYTES = 1 << 30
#: Weights below this are computed by a single thread when nothing is said.
SMALL_MODEL_BYTES = 64 << 20
#: A context longer than this is used only when asked for.
DEFAULT_MAX_MODEL_LEN = 8192

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


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
    path = Path(config.model_path)
    torch.set_num_threads(config.num_threads or _default_threads(path))
    model_config = _read_json(path / "config.json")
    if model_config is None:
        raise LoadError(f"{path} has no readable config.json")
    report("loading weights", 0.1)
    decoder = _decoder(config, path, model_config, report)
    max_model_len = _max_model_len(config, model_config)
    num_blocks = _num_blocks(config, decoder, max_model_len)
    shapes, block_size = decoder.shapes, config.block_size
    cache = PagedCache(shapes, num_blocks, block_size, decoder.dtype, decoder.device)
    eos = _eos_token_ids(path, model_config)
    info = EngineInfo(
        max_model_len=max_model_len,
        vocab_size=decoder.vocab_size,
        num_blocks=num_blocks,
        block_size=block_size,
        dtype=str(decoder.dtype).removeprefix("torch."),
        device=str(decoder.device),
    )
    return LoadedModel(ModelRunner(decoder, cache, Sampler(eos)), info, eos)


def _default_threads(path: Path) -> int:
    """One per core; one in all for a model so small that waiting for each other costs more."""
    num_bytes = sum(file.stat().st_size for file in path.glob("*.safetensors"))
    return 1 if num_bytes < SMALL_MODEL_BYTES else torch.get_num_threads()


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _decoder(
    config: EngineConfig, path: Path, model_config: Mapping[str, Any], report: Report
) -> Decoder:
    device = _device(config.device)
    dtype = _dtype(config.dtype, model_config, device)
    spec = None if config.model_impl == "transformers" else describe(model_config)
    if spec is not None:
        return _lean_decoder(spec, path, dtype, device, report)
    report("importing transformers", 0.1)
    from streamwell.engine.transformers_model import TransformersDecoder

    return TransformersDecoder(path, dtype, device)


@torch.inference_mode()
def _lean_decoder(
    spec: DecoderSpec, path: Path, dtype: torch.dtype, device: torch.device, report: Report
) -> LeanDecoder:
    files = _weight_files(path)
    weights: dict[str, torch.Tensor] = {}
    try:
        for done, file in enumerate(files, start=1):
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - not a mapping
                    weights[name] = tensors.get_tensor(name).to(device, dtype)
            report("loading weights", 0.1 + 0.8 * done / len(files))
        decoder = LeanDecoder(spec, weights)
        _try_out(decoder)
    except (SafetensorError, OSError, KeyError, RuntimeError) as error:
        raise LoadError(f"cannot load {path}: {error!r}") from error
    return decoder


def _weight_files(path: Path) -> list[Path]:
    """The files that the index names, if there is one: some folders hold the weights twice."""
    index = _read_json(path / "model.safetensors.index.json")
    single = path / "model.safetensors"
    if index is not None and isinstance(index.get("weight_map"), dict):
        files = [path / Path(name).name for name in sorted(set(index["weight_map"].values()))]
    elif single.is_file():
        files = [single]
    else:
        raise LoadError(f"{path} has no safetensors files")
    return files


def _try_out(decoder: LeanDecoder) -> None:
    """Run one token through all layers: weights that do not fit each other show here."""

    def attention(
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float,
        window: int | None = None,
    ) -> torch.Tensor:
        return sequence_attention(query, key, value, None, scale)

    zero = torch.zeros(1, dtype=torch.int64, device=decoder.device)
    decoder.forward(zero, zero, zero, attention)


def _device(name: str) -> torch.device:
    if name != "auto":
        return torch.device(name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _dtype(name: str, model_config: Mapping[str, Any], device: torch.device) -> torch.dtype:
    """The dtype asked for, or the saved one, or the nearest that this device computes fast."""
    if name != "auto":
        return _DTYPES[name]
    saved = _DTYPES.get(
        model_config.get("dtype") or model_config.get("torch_dtype") or "", torch.float32
    )
    if device.type != "cpu" or saved is torch.float32:
        return saved
    # float16 has no fast path on any CPU, bfloat16 only where the hardware has it
    return torch.bfloat16 if _has_bfloat16() else torch.float32


def _has_bfloat16() -> bool:
    flags = torch.backends.cpu.get_cpu_capability()
    return "AVX512" in flags and bool(torch.cpu._is_avx512_bf16_supported())


def _max_model_len(config: EngineConfig, model_config: Mapping[str, Any]) -> int:
    text_config = model_config.get("text_config") or model_config
    trained: int = text_config.get("max_position_embeddings") or 0
    if config.max_model_len is None:
        return min(trained or DEFAULT_MAX_MODEL_LEN, DEFAULT_MAX_MODEL_LEN)
    if trained and config.max_model_len > trained:
        raise LoadError(f"--max-model-len {config.max_model_len} is over the model's {trained}")
    return config.max_model_len


def _num_blocks(config: EngineConfig, decoder: Decoder, max_model_len: int) -> int:
    block_bytes = PagedCache.bytes_per_token(decoder.shapes, decoder.dtype) * config.block_size
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


def _eos_token_ids(path: Path, model_config: Mapping[str, Any]) -> frozenset[int]:
    generation_config = _read_json(path / "generation_config.json") or {}
    text_config = model_config.get("text_config") or model_config
    for source in (generation_config, model_config, text_config):
        if (ids := source.get("eos_token_id")) is not None:
            return frozenset(ids if isinstance(ids, list) else [ids])
    return frozenset()
