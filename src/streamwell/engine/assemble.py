"""Assembles a model from its folder: which decoder runs it, on which device, in which dtype.

On a CPU the native helper runs what it has the parts of; else, or where it fails, our decoders and
encoder-decoders in PyTorch do; decoders that `families` does not know run on Transformers' own
code. Nothing in a model folder is executed unless it is trusted.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

from streamwell.core.errors import LoadError
from streamwell.engine import decode_graphs
from streamwell.engine.block import EAGER, LeanDecoder
from streamwell.engine.checkpoint import Report, open_checkpoint
from streamwell.engine.compiled import compiled_halves, warm_up
from streamwell.engine.families import (
    CanonicalWeights,
    DecoderSpec,
    canonical_rows,
    canonical_weights,
    check_shapes,
    describe,
    with_saved_head,
)
from streamwell.engine.lora.folder import Base
from streamwell.engine.lora.fused import fuse
from streamwell.engine.lora.layers import adaptable_layers
from streamwell.engine.lora.table import AdapterTable, adapter_table
from streamwell.engine.messages import EngineConfig
from streamwell.engine.model_runner import Model
from streamwell.engine.native import library
from streamwell.engine.native.decoder import NativeDecoder, supports
from streamwell.engine.native.low_rank import NativeAdapter
from streamwell.engine.native_choice import (
    NoHelperError,
    choose_helper,
    run_by,
    warnings_without,
)
from streamwell.engine.placement import PlacedWeights, device_of, dtype_of
from streamwell.engine.quantization import in_effect
from streamwell.engine.seq2seq import build as seq2seq
from streamwell.engine.seq2seq.families import is_encoder_decoder
from streamwell.engine.torch_model import TorchModel
from streamwell.engine.try_out import try_out_native, try_out_torch
from streamwell.models.small_files import read_if_there


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
    #: Where adapters are added, if it may have some.
    adapters: AdapterTable[Any] | None = None


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
    code = (model_config.get("auto_map") or {}) if config.trust_remote_code else {}
    if is_encoder_decoder(model_config):
        if "AutoModelForSeq2SeqLM" in code:
            raise LoadError("encoder-decoders with code of their own are not served")
        return _encoder_decoder(config, path, model_config, max_model_len, dtype, device, report)
    has_code = "AutoModelForCausalLM" in code  # it may do anything with the weights of a family
    spec = None if has_code or config.model_impl == "transformers" else describe(model_config)
    if spec is None:
        return _foreign(config, path, dtype, device, report)
    return _own_decoder(config, path, model_config, spec, max_model_len, dtype, device, report)


def _own_decoder(
    config: EngineConfig,
    path: Path,
    model_config: Mapping[str, Any],
    spec: DecoderSpec,
    max_model_len: int,
    dtype: torch.dtype,
    device: torch.device,
    report: Report,
) -> Assembled:
    """On the native helper, or if that does not fit, in PyTorch."""
    spec, weights = _read(config, path, model_config, spec, dtype, report)
    outline = weights.outline
    widths = {w.shape[1] for name, w in outline.items() if name.endswith("_proj.weight")}
    quantization = in_effect(config.quantization, widths)
    layers = adaptable_layers(spec, outline)
    base = functools.partial(Base, layers, functools.partial(canonical_rows, model_config, spec))
    try:
        helper = choose_helper(config, dtype, device, has_parts=supports(spec, outline))
        packed = base(torch.float32)
        model = run_by(
            helper,
            lambda: _native_decoder(helper, config, spec, weights, packed, dtype, max_model_len),
        )
    except NoHelperError as reason:
        warnings = warnings_without(config, reason)
    else:
        return Assembled(
            model=model,
            implementation=f"native/{library.instruction_set(helper)}",
            quantization=quantization,
            adapters=model.adapters,
        )
    placed = PlacedWeights(weights, device, dtype)
    decoder = _lean_decoder(config, spec, placed, max_model_len, report)
    torch_model, told = _torch_model(config, spec, decoder, base(decoder.dtype), max_model_len)
    return Assembled(
        model=torch_model,
        implementation="torch",
        quantization=quantization,
        warnings=(*warnings, *told),
        adapters=torch_model.adapters,
    )


def _read(
    config: EngineConfig,
    path: Path,
    model_config: Mapping[str, Any],
    spec: DecoderSpec,
    dtype: torch.dtype,
    report: Report,
) -> tuple[DecoderSpec, CanonicalWeights]:
    """The weights under our names, checked, and the spec as they have it."""
    # what will be rounded anew need not take four bytes a number until then
    unrounded = dtype if config.quantization == "none" else torch.float16
    checkpoint = open_checkpoint(
        path, unrounded, lambda done: report("loading weights", 0.1 + 0.8 * done)
    )
    weights = canonical_weights(model_config, spec, checkpoint, checkpoint.outline)
    spec = with_saved_head(spec, weights)
    check_shapes(spec, {name: tuple(w.shape) for name, w in weights.outline.items()})
    return spec, weights


def _torch_model(
    config: EngineConfig, spec: DecoderSpec, decoder: LeanDecoder, base: Base, max_model_len: int
) -> tuple[TorchModel, tuple[str, ...]]:
    """With its adapters and what is recorded of it; and what is to be said."""
    fused = functools.partial(fuse, base.layers, dtype=decoder.dtype, device=decoder.device)
    recording, told = _recording(config, spec, decoder, max_model_len)
    adapters = adapter_table(config, base, fused)
    return TorchModel(decoder, config.block_size, adapters, recording), told


def _recording(
    config: EngineConfig, spec: DecoderSpec, decoder: LeanDecoder, max_model_len: int
) -> tuple[decode_graphs.Recording | None, tuple[str, ...]]:
    """What is recorded of steps, if anything shall and can; and what is to be said."""
    # which experts compute is decided on the host, in the midst of a step
    if not config.cuda_graphs or decoder.device.type != "cuda" or spec.experts is not None:
        return None, ()
    trial, record = (decode_graphs.CudaRecorder(decoder.device) for _ in range(2))
    if decode_graphs.work(decoder, config.block_size, trial):
        return decode_graphs.Recording(record, config.max_num_seqs, max_model_len), ()
    return None, ("CUDA graphs do not work here: decoding is slower than it could be",)


def _encoder_decoder(
    config: EngineConfig,
    path: Path,
    model_config: Mapping[str, Any],
    max_model_len: int,
    dtype: torch.dtype,
    device: torch.device,
    report: Report,
) -> Assembled:
    """Our own, natively or in PyTorch."""
    config, told = _without_adapters(config)
    seq2seq.check_options(config)
    generation_config = read_if_there(path / "generation_config.json")
    saved = open_checkpoint(path, dtype, lambda done: report("loading weights", 0.1 + 0.4 * done))
    spec, weights = seq2seq.describe_weights(model_config, generation_config, saved)
    quantization = "none"
    report("packing weights", 0.5)
    try:
        helper = choose_helper(config, dtype, device, has_parts=seq2seq.supports(spec, weights))
        model: Model = run_by(
            helper, lambda: seq2seq.native(helper, config, spec, weights, max_model_len, dtype)
        )
        implementation = f"native/{library.instruction_set(helper)}"
        quantization = seq2seq.quantization_in_effect(config, weights)
    except NoHelperError as reason:
        told += warnings_without(config, reason, can_round=False)
        placed = PlacedWeights(weights, device, dtype)
        model = seq2seq.in_torch(spec, placed, config.block_size, max_model_len)
        implementation = "torch"
    return Assembled(
        model=model,
        implementation=implementation,
        quantization=quantization,
        warnings=told,
        start_ids=spec.start_ids,
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
    _, warnings = _without_adapters(config)
    return Assembled(model=model, implementation="transformers", warnings=warnings)


def _without_adapters(config: EngineConfig) -> tuple[EngineConfig, tuple[str, ...]]:
    """For a model that takes none, while others of the server may; and what is to be said."""
    if not config.enable_lora:
        return config, ()
    told = "adapters cannot be added to this model: they work with our decoders only"
    return msgspec.structs.replace(config, enable_lora=False), (told,)


def _native_decoder(
    helper: ctypes.CDLL,
    config: EngineConfig,
    spec: DecoderSpec,
    weights: Mapping[str, torch.Tensor],
    base: Base,
    dtype: torch.dtype,
    max_model_len: int,
) -> NativeDecoder:
    """A native decoder that has been tried out."""
    prepare = functools.partial(NativeAdapter, base.layers, is_gated=spec.is_gated)
    model = NativeDecoder(
        helper,
        spec,
        weights,
        max_positions=max_model_len,
        dtype=dtype,
        quantization=config.quantization,
        adapters=adapter_table(config, base, prepare),
    )
    try_out_native(model, spec)
    return model


@torch.inference_mode()
def _lean_decoder(
    config: EngineConfig,
    spec: DecoderSpec,
    weights: Mapping[str, torch.Tensor],
    max_model_len: int,
    report: Report,
) -> LeanDecoder:
    if config.compile and spec.experts is not None:
        raise LoadError("--compile does not work with mixtures of experts")
    halves = compiled_halves(weights["model.norm.weight"].device) if config.compile else EAGER
    decoder = LeanDecoder(spec, weights, config.quantization, halves, max_positions=max_model_len)
    if config.compile:
        report("compiling", 0.9)
        warm_up(decoder)
    try_out_torch(decoder, spec)
    return decoder
