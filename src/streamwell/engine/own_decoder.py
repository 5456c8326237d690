"""Puts a decoder of a known family together: on the native helper, or in PyTorch."""

from __future__ import annotations

import ctypes
import functools

import torch

from streamwell.core.errors import LoadError
from streamwell.engine import decode_graphs
from streamwell.engine.assembled import Assembled, Plan
from streamwell.engine.block import EAGER, LeanDecoder
from streamwell.engine.checkpoint import open_checkpoint, told_unused
from streamwell.engine.compiled import compiled_halves, warm_up
from streamwell.engine.families import (
    CanonicalWeights,
    DecoderSpec,
    canonical_rows,
    canonical_weights,
    check_shapes,
    decoder_config,
    missed_biases,
    places,
    with_saved_head,
)
from streamwell.engine.kernel_choice import Kernels, choose_kernels
from streamwell.engine.lora.folder import Base
from streamwell.engine.lora.fused import fuse
from streamwell.engine.lora.layers import adaptable_layers
from streamwell.engine.lora.table import adapter_table
from streamwell.engine.messages import KERNELS
from streamwell.engine.native import library
from streamwell.engine.native.cache import CacheShape
from streamwell.engine.native.decoder import NativeDecoder, supports
from streamwell.engine.native.low_rank import NativeAdapter
from streamwell.engine.native_choice import (
    NoHelperError,
    choose_helper,
    run_by,
    warnings_without,
)
from streamwell.engine.operations import IN_PYTORCH
from streamwell.engine.placement import PlacedWeights
from streamwell.engine.quantization import in_effect
from streamwell.engine.saved_weights import kept_in_all
from streamwell.engine.torch_model import TorchModel
from streamwell.engine.try_out import try_out_native, try_out_torch
from streamwell.models.claims import check_embeddings
from streamwell.models.gguf_folder import given


def own_decoder(plan: Plan, spec: DecoderSpec) -> Assembled:
    """On the native helper, or if that does not fit, in PyTorch.

    Raises:
        NoHelperError: weights are to stay rounded, which PyTorch cannot do.
    """
    spec, weights, doubts = _read(plan, spec)
    layers = adaptable_layers(spec, weights.outline)
    rows = functools.partial(canonical_rows, plan.model_config, spec)
    base = functools.partial(Base, layers, rows)
    try:
        has_parts = supports(spec, weights.outline)
        helper = choose_helper(plan.config, plan.dtype, plan.device, has_parts=has_parts)
        packed = base(torch.float32)
        model = run_by(helper, lambda: _native_decoder(plan, helper, spec, weights, packed))
    except NoHelperError as reason:
        if plan.keeps_rounding:
            raise
        warnings = warnings_without(plan.config, reason)
    else:
        return Assembled(
            model=model,
            implementation=f"native/{library.instruction_set(helper)}",
            quantization=_quantization(plan, weights),
            warnings=doubts,
            adapters=model.adapters,
        )
    kernels, missing = choose_kernels(plan.device, plan.dtype, spec, plan.config.block_size)
    placed = PlacedWeights(weights, plan.device, plan.dtype)
    decoder = _lean_decoder(plan, spec, placed, kernels)
    torch_model, told = _torch_model(plan, spec, decoder, base(decoder.dtype), kernels)
    return Assembled(
        model=torch_model,
        implementation="torch" if kernels is None else KERNELS,
        quantization=_quantization(plan, weights),
        warnings=(*doubts, *warnings, *missing, *told),
        adapters=torch_model.adapters,
    )


def _read(plan: Plan, spec: DecoderSpec) -> tuple[DecoderSpec, CanonicalWeights, tuple[str, ...]]:
    """The weights under our names, checked, the spec as they have it, and what does not fit.

    Raises:
        LoadError: some are missing, or the embeddings are of another size than the config says.
        ValueError: one is of another shape than the config says.
    """
    # what will be rounded anew need not take four bytes a number until then
    is_rounded = plan.keeps_rounding or plan.config.quantization != "none"
    checkpoint = open_checkpoint(
        plan.path,
        torch.float16 if is_rounded else plan.dtype,
        lambda done: plan.report("loading weights", 0.1 + 0.8 * done),
    )
    weights = canonical_weights(plan.model_config, spec, checkpoint)
    spec = with_saved_head(spec, weights)
    shapes = {name: tuple(w.shape) for name, w in weights.outline.items()}
    try:
        check_shapes(spec, shapes)
    except KeyError as missing:
        name = weights.name_in_file(missing.args[0])
        raise LoadError(f"{given(plan.path)} has no weights {name!r}") from missing
    check_embeddings(decoder_config(plan.model_config), shapes["model.embed_tokens.weight"])
    doubts = told_unused(weights.unused(places(spec, shapes)))
    missed = missed_biases(plan.model_config, weights)
    doubts += tuple(
        f"config.json has {flag}, but the weights have no such biases" for flag in missed
    )
    return spec, weights, doubts


def _quantization(plan: Plan, weights: CanonicalWeights) -> str:
    """What the linear layers are rounded to."""
    names = [name for name in weights if name.endswith("_proj.weight")]
    if plan.keeps_rounding:
        return kept_in_all(weights.saved_kind(name) for name in names)
    return in_effect(plan.config.quantization, {weights.outline[n].shape[1] for n in names})


def _native_decoder(
    plan: Plan, helper: ctypes.CDLL, spec: DecoderSpec, weights: CanonicalWeights, base: Base
) -> NativeDecoder:
    """A native decoder that has been tried out."""
    cache = CacheShape(helper, plan.dtype, spec.num_kv_heads, spec.head_dim)
    plan.check_cache(spec.num_layers * cache.bytes_per_token)
    prepare = functools.partial(NativeAdapter, base.layers, is_gated=spec.is_gated)
    model = NativeDecoder(
        helper,
        spec,
        weights,
        max_positions=plan.max_model_len,
        dtype=plan.dtype,
        quantization=plan.config.quantization,
        rounding=weights if plan.keeps_rounding else None,
        adapters=adapter_table(plan.config, base, prepare),
    )
    try_out_native(model, spec)
    return model


def _torch_model(
    plan: Plan, spec: DecoderSpec, decoder: LeanDecoder, base: Base, kernels: Kernels | None
) -> tuple[TorchModel, tuple[str, ...]]:
    """With its adapters and what is recorded of it; and what is to be said."""
    fused = functools.partial(fuse, base.layers, dtype=decoder.dtype, device=decoder.device)
    adapters = adapter_table(plan.config, base, fused)
    size = plan.config.block_size
    if kernels is None:
        return TorchModel(decoder, size, adapters), ()
    recording, told = _recording(plan, spec, decoder, kernels.lay_out_decodes)
    return TorchModel(decoder, size, adapters, kernels.lay_out, recording), told


def _recording(
    plan: Plan, spec: DecoderSpec, decoder: LeanDecoder, lay_out: decode_graphs.LayOutDecodes
) -> tuple[decode_graphs.Recording | None, tuple[str, ...]]:
    """What is recorded of steps, if anything shall and can; and what is to be said."""
    # which experts compute is decided on the host, in the midst of a step
    if not plan.config.cuda_graphs or spec.experts is not None:
        return None, ()
    trial, record = (decode_graphs.CudaRecorder(decoder.device) for _ in range(2))
    if decode_graphs.work(decoder, plan.config.block_size, trial, lay_out):
        num_seqs = plan.config.max_num_seqs
        return decode_graphs.Recording(record, lay_out, num_seqs, plan.max_model_len), ()
    return None, ("CUDA graphs do not work here: decoding is slower than it could be",)


@torch.inference_mode()
def _lean_decoder(
    plan: Plan, spec: DecoderSpec, weights: PlacedWeights, kernels: Kernels | None
) -> LeanDecoder:
    config = plan.config
    if config.compile and spec.experts is not None:
        raise LoadError("--compile does not work with mixtures of experts")
    plan.check_cache(2 * spec.num_layers * spec.num_kv_heads * spec.head_dim * plan.dtype.itemsize)
    halves = compiled_halves(weights["model.norm.weight"].device) if config.compile else EAGER
    # the compiler puts them together by itself
    operations = IN_PYTORCH if kernels is None or config.compile else kernels.operations
    decoder = LeanDecoder(
        spec, weights, config.quantization, halves, operations, max_positions=plan.max_model_len
    )
    if config.compile:
        plan.report("compiling", 0.9)
        warm_up(decoder)
    try_out_torch(decoder, spec)
    return decoder
