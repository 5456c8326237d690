"""Assembles a model from its folder: which decoder runs it, on which device, in which dtype.

On a CPU that computes in float32 the native decoder runs the families that `families` knows
completely; else, or where the helper fails, the lean one in PyTorch does; everything else runs on
Transformers' own code. Nothing in a model folder is executed unless it is trusted.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from streamwell.core.errors import LoadError
from streamwell.engine.block import EAGER, LeanDecoder
from streamwell.engine.checkpoint import Report, read_weights
from streamwell.engine.compiled import compiled_halves, warm_up
from streamwell.engine.families import (
    DecoderSpec,
    canonical_weights,
    check_shapes,
    describe,
)
from streamwell.engine.folder import read_json
from streamwell.engine.messages import EngineConfig
from streamwell.engine.model_runner import Model
from streamwell.engine.native import library
from streamwell.engine.native.batch import BLOCK_SIZE
from streamwell.engine.native.decoder import NativeDecoder, supports
from streamwell.engine.native.linear import passes_self_test
from streamwell.engine.placement import device_of, dtype_of
from streamwell.engine.quantization import in_effect
from streamwell.engine.seq2seq.build import build, check_options
from streamwell.engine.seq2seq.families import is_encoder_decoder, unserved
from streamwell.engine.torch_model import TorchModel
from streamwell.engine.try_out import try_out_native, try_out_torch

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
    #: What an encoder-decoder's answers begin with; empty for decoders.
    start_ids: tuple[int, ...] = ()


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
    device = device_of(config.device)
    dtype = dtype_of(config, model_config, device)
    if is_encoder_decoder(model_config):
        return _encoder_decoder(config, path, model_config, max_model_len, dtype, device, report)
    spec = None if config.model_impl == "transformers" else describe(model_config)
    if spec is None:
        return _foreign(config, path, dtype, device, report)
    weights = canonical_weights(model_config, spec, read_weights(path, report))
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
    decoder = _lean_decoder(config, spec, weights, max_model_len, report)
    return Assembled(
        model=TorchModel(decoder, config.block_size),
        implementation="torch",
        quantization=quantization,
        warnings=warnings,
    )


def _encoder_decoder(
    config: EngineConfig,
    path: Path,
    model_config: Mapping[str, Any],
    max_model_len: int,
    dtype: torch.dtype,
    device: torch.device,
    report: Report,
) -> Assembled:
    """There is one way to run those."""
    check_options(config)
    weights = {name: w.to(device, dtype) for name, w in read_weights(path, report).items()}
    generation_config = read_json(path / "generation_config.json") or {}
    report("packing weights", 0.5)
    model = build(model_config, generation_config, weights, config.block_size, max_model_len)
    return Assembled(
        model=model,
        implementation="torch",
        warnings=unserved(generation_config),
        start_ids=model.start_ids,
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

    decoder = TransformersDecoder(path, dtype, device, trust_remote_code=config.trust_remote_code)
    model = TorchModel(decoder, config.block_size)
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


@torch.inference_mode()
def _lean_decoder(
    config: EngineConfig,
    spec: DecoderSpec,
    weights: Mapping[str, torch.Tensor],
    max_model_len: int,
    report: Report,
) -> LeanDecoder:
    if config.compile:
        if spec.experts is not None:
            raise LoadError("--compile does not work with mixtures of experts")
        report("compiling", 0.6)
    halves = compiled_halves(weights["model.norm.weight"].device) if config.compile else EAGER
    decoder = LeanDecoder(spec, weights, config.quantization, halves, max_positions=max_model_len)
    if config.compile:
        warm_up(decoder)
    try_out_torch(decoder, spec)
    return decoder
