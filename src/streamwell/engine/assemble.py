"""Assembles a model from its folder: which decoder runs it, on which device, in which dtype.

On a CPU that computes in float32 the native decoder runs the families that `families` knows
completely; else, or where the helper fails, the lean one in PyTorch does; everything else runs on
Transformers' own code. Nothing in a model folder is executed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from streamwell.core.errors import LoadError
from streamwell.engine.block import EAGER, LeanDecoder
from streamwell.engine.compiled import compiled_halves, warm_up
from streamwell.engine.families import DecoderSpec, check_shapes, describe
from streamwell.engine.folder import read_json
from streamwell.engine.messages import EngineConfig
from streamwell.engine.model_runner import Model
from streamwell.engine.native import library
from streamwell.engine.native.decoder import BLOCK_SIZE, NativeDecoder, supports
from streamwell.engine.native.linear import passes_self_test
from streamwell.engine.quantization import in_effect
from streamwell.engine.torch_model import TorchModel
from streamwell.engine.try_out import try_out_native, try_out_torch

Report = Callable[[str, float], None]

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


#: What a helper that does not fit this machine, or is damaged, does to its callers.
_HELPER_FAILURES = (ctypes.ArgumentError, AttributeError, OSError, RuntimeError)


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


class _NoHelperError(Exception):
    """The native helper does not run this model; the message says why."""


class _HelperBrokenError(_NoHelperError):
    """It should, but it fails."""


def assemble(
    config: EngineConfig,
    path: Path,
    model_config: Mapping[str, Any],
    max_model_len: int,
    report: Report,
) -> Assembled:
    """The model in `path`; a damaged folder raises what it happens to raise.

    Raises:
        LoadError: it cannot be loaded in the way asked for.
    """
    device = _device(config.device)
    dtype = _dtype(config, model_config, device)
    spec = None if config.model_impl == "transformers" else describe(model_config)
    if spec is None:
        return _foreign(config, path, dtype, device, report)
    weights = _read_weights(path, report)
    check_shapes(spec, {name: tuple(w.shape) for name, w in weights.items()})
    widths = {w.shape[1] for name, w in weights.items() if name.endswith("_proj.weight")}
    quantization = in_effect(config.quantization, widths)
    try:
        helper = _helper(config, spec, weights, dtype, device)
        report("packing weights", 0.5)
        model = _native_decoder(helper, config, spec, weights, dtype, max_model_len)
    except _NoHelperError as reason:
        if config.model_impl == "native":
            raise LoadError(f"the native helper cannot run this model: {reason}") from reason
        warnings = _warnings(config, reason)
    else:
        implementation = f"native/{library.instruction_set(helper)}"
        return Assembled(model=model, implementation=implementation, quantization=quantization)
    weights = {name: tensor.to(device, dtype) for name, tensor in weights.items()}
    if config.compile:
        report("compiling", 0.6)
    return Assembled(
        model=TorchModel(_lean_decoder(config, spec, weights), config.block_size),
        implementation="torch",
        quantization=quantization,
        warnings=warnings,
    )


def _foreign(
    config: EngineConfig, path: Path, dtype: torch.dtype, device: torch.device, report: Report
) -> Assembled:
    """What our decoders do not know runs on Transformers' code."""
    if config.model_impl in ("native", "torch"):
        raise LoadError(f"--model-impl {config.model_impl} does not know this architecture")
    if config.compile:
        raise LoadError("--compile works with our decoders only, not on Transformers' code")
    if config.quantization != "none":
        raise LoadError("--quantization works with our decoders only, not on Transformers' code")
    report("importing transformers", 0.1)
    from streamwell.engine.transformers_model import TransformersDecoder

    model = TorchModel(TransformersDecoder(path, dtype, device), config.block_size)
    return Assembled(model=model, implementation="transformers")


def _helper(
    config: EngineConfig,
    spec: DecoderSpec,
    weights: Mapping[str, torch.Tensor],
    dtype: torch.dtype,
    device: torch.device,
) -> ctypes.CDLL:
    """The native helper, if it is there and can run this model.

    Raises:
        _NoHelperError: it cannot.
    """
    helper = library.best()
    obstacles = {
        "--model-impl torch was given": config.model_impl == "torch",
        "--compile was given": config.compile,
        "it is not compiled for this machine": helper is None,
        "it computes on a CPU only": device.type != "cpu",
        f"it does not compute in {_name_of(dtype)} here": not _computes(helper, dtype),
        f"its cache blocks hold {BLOCK_SIZE} tokens": config.block_size != BLOCK_SIZE,
        "it does not do this model's sizes": not supports(spec, weights),
    }
    reasons = [reason for reason, stands in obstacles.items() if stands]
    if reasons or helper is None:
        raise _NoHelperError(reasons[0])
    return helper


def _native_decoder(
    helper: ctypes.CDLL,
    config: EngineConfig,
    spec: DecoderSpec,
    weights: Mapping[str, torch.Tensor],
    dtype: torch.dtype,
    max_model_len: int,
) -> NativeDecoder:
    """A native decoder that has been tried out.

    Raises:
        _HelperBrokenError: the helper fails, whatever the model.
        LoadError: the model is at fault.
    """
    try:
        _check_helper(helper)
        model = NativeDecoder(
            helper,
            spec,
            weights,
            max_positions=max_model_len,
            dtype=dtype,
            quantization=config.quantization,
        )
        try_out_native(model, spec)
    except _HELPER_FAILURES as error:
        raise _HelperBrokenError(f"it failed ({error!r})") from error
    return model


def _computes(helper: ctypes.CDLL | None, dtype: torch.dtype) -> bool:
    """Whether the helper has linear layers in this dtype."""
    if dtype is torch.bfloat16:
        return helper is not None and bool(helper.sw_has_bfloat16())
    return dtype is torch.float32


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _check_helper(helper: ctypes.CDLL) -> None:
    if not passes_self_test(helper):
        raise _HelperBrokenError("it computes wrongly on this machine")


def _warnings(config: EngineConfig, reason: _NoHelperError) -> tuple[str, ...]:
    """What is slower than the person who started the server may think."""
    warnings = []
    if isinstance(reason, _HelperBrokenError):
        warnings.append(f"PyTorch computes, more slowly than the native helper would: {reason}")
    if config.quantization != "none":
        warnings.append(
            f"--quantization {config.quantization} rounds the weights but saves neither memory nor "
            f"time, since the native helper does not run this model: {reason}"
        )
    return tuple(warnings)


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
    config: EngineConfig, spec: DecoderSpec, weights: Mapping[str, torch.Tensor]
) -> LeanDecoder:
    halves = compiled_halves(weights["model.norm.weight"].device) if config.compile else EAGER
    decoder = LeanDecoder(spec, weights, config.quantization, halves)
    if config.compile:
        warm_up(decoder)
    try_out_torch(decoder, spec)
    return decoder


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
