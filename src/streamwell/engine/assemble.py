"""Assembles a model from its folder: which decoder runs it, on which device, in which dtype.

On a CPU that computes in float32 the native decoder runs the families that `families` knows
completely, else the lean one in PyTorch does; everything else runs on Transformers' own code.
Nothing in a model folder is executed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from streamwell.core.errors import LoadError
from streamwell.engine.attention import sequence_attention
from streamwell.engine.block import LeanDecoder
from streamwell.engine.families import DecoderSpec, check_shapes, describe
from streamwell.engine.folder import read_json
from streamwell.engine.messages import EngineConfig
from streamwell.engine.model_runner import Model
from streamwell.engine.native import library
from streamwell.engine.native.decoder import BLOCK_SIZE, NativeDecoder, supports
from streamwell.engine.torch_model import TorchModel

Report = Callable[[str, float], None]

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def assemble(
    config: EngineConfig,
    path: Path,
    model_config: Mapping[str, Any],
    max_model_len: int,
    report: Report,
) -> Model:
    """The model in `path`, without a cache yet; a damaged folder raises what it happens to raise.

    Raises:
        LoadError: it cannot be loaded in the way asked for.
    """
    device = _device(config.device)
    dtype = _dtype(config, model_config, device)
    spec = None if config.model_impl == "transformers" else describe(model_config)
    if spec is None:
        if config.model_impl in ("native", "torch"):
            raise LoadError(f"--model-impl {config.model_impl} does not know this architecture")
        if config.quantization != "none":
            raise LoadError(
                "--quantization works with our decoders only, not on Transformers' code"
            )
        report("importing transformers", 0.1)
        from streamwell.engine.transformers_model import TransformersDecoder

        return TorchModel(TransformersDecoder(path, dtype, device), config.block_size)
    weights = _read_weights(path, report)
    check_shapes(spec, {name: tuple(w.shape) for name, w in weights.items()})
    helper = _helper(config, spec, weights, dtype, device)
    if helper is not None:
        report("packing weights", 0.5)
        quantization = config.quantization
        return NativeDecoder(
            helper, spec, weights, max_positions=max_model_len, quantization=quantization
        )
    weights = {name: tensor.to(device, dtype) for name, tensor in weights.items()}
    decoder = _lean_decoder(spec, weights, config.quantization)
    return TorchModel(decoder, config.block_size)


def _helper(
    config: EngineConfig,
    spec: DecoderSpec,
    weights: Mapping[str, torch.Tensor],
    dtype: torch.dtype,
    device: torch.device,
) -> ctypes.CDLL | None:
    """The native helper, if it is there and can run this model."""
    obstacles = {
        "it is not compiled for this machine": library.best() is None,
        "it computes in float32 on a CPU only": device.type != "cpu" or dtype != torch.float32,
        f"its cache blocks hold {BLOCK_SIZE} tokens": config.block_size != BLOCK_SIZE,
        "it does not do this model's sizes": not supports(spec, weights),
    }
    reasons = [reason for reason, stands in obstacles.items() if stands]
    if config.model_impl == "native" and reasons:
        raise LoadError(f"the native helper cannot run this model: {reasons[0]}")
    return None if reasons or config.model_impl == "torch" else library.best()


def _read_weights(path: Path, report: Report) -> dict[str, torch.Tensor]:
    """All tensors by name, as they are saved; pages are read from the file when they are used."""
    files = _weight_files(path)
    weights: dict[str, torch.Tensor] = {}
    for done, file in enumerate(files, start=1):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a mapping
                weights[name] = tensors.get_tensor(name)
        report("loading weights", 0.1 + 0.4 * done / len(files))
    return weights


def _weight_files(path: Path) -> list[Path]:
    """The files that the index names, if there is one: some folders hold the weights twice."""
    index = read_json(path / "model.safetensors.index.json")
    single = path / "model.safetensors"
    if index is not None and isinstance(index.get("weight_map"), dict):
        files = [path / Path(name).name for name in sorted(set(index["weight_map"].values()))]
    elif single.is_file():
        files = [single]
    else:
        raise LoadError(f"{path} has no safetensors files")
    return files


@torch.inference_mode()
def _lean_decoder(
    spec: DecoderSpec, weights: Mapping[str, torch.Tensor], quantization: str
) -> LeanDecoder:
    decoder = LeanDecoder(spec, weights, quantization)
    _try_out(decoder)
    return decoder


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


def _dtype(
    config: EngineConfig, model_config: Mapping[str, Any], device: torch.device
) -> torch.dtype:
    """The dtype asked for, or the saved one, or the nearest that this device computes fast."""
    if config.dtype != "auto":
        return _DTYPES[config.dtype]
    saved = _DTYPES.get(
        model_config.get("dtype") or model_config.get("torch_dtype") or "", torch.float32
    )
    if device.type != "cpu" or saved is torch.float32:
        return saved
    # float16 has no fast path on any CPU, bfloat16 only where the hardware has it; quantised
    # weights are the native helper's, which computes in float32
    is_fast = _has_bfloat16() and config.quantization == "none"
    return torch.bfloat16 if is_fast else torch.float32


def _has_bfloat16() -> bool:
    flags = torch.backends.cpu.get_cpu_capability()
    return "AVX512" in flags and bool(torch.cpu._is_avx512_bf16_supported())
