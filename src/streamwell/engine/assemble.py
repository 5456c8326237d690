"""Assembles a model from its folder: which decoder runs it, on which device, in which dtype.

On a CPU the native helper runs what it has the parts of; else, or where it fails, our decoders and
encoder-decoders in PyTorch do; decoders that `families` does not know run on Transformers' own
code. Nothing in a model folder is executed unless it is trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from streamwell.core.errors import LoadError
from streamwell.engine.assembled import Assembled, Plan, without_adapters
from streamwell.engine.checkpoint import Report, open_checkpoint, told_unused
from streamwell.engine.families import describe
from streamwell.engine.foreign_decoder import foreign_decoder
from streamwell.engine.messages import EngineConfig
from streamwell.engine.model_runner import Model
from streamwell.engine.native import library
from streamwell.engine.native_choice import (
    HelperBrokenError,
    NoHelperError,
    choose_helper,
    run_by,
    warnings_without,
)
from streamwell.engine.own_decoder import own_decoder
from streamwell.engine.placement import PlacedWeights, device_of, dtype_of
from streamwell.engine.seq2seq import build as seq2seq
from streamwell.engine.seq2seq.families import is_encoder_decoder
from streamwell.models.small_files import read_if_there
from streamwell.models.weights import has_rounded_weights


def assemble(
    config: EngineConfig,
    path: Path,
    model_config: Mapping[str, Any],
    max_model_len: int,
    report: Report,
    check_cache: Callable[[int], object],
) -> Assembled:
    """The model in `path`; a damaged folder raises what it happens to raise.

    `check_cache` is told the bytes that a token takes in the cache of a model of ours, before its
    weights are packed.

    Raises:
        LoadError: it cannot be loaded in the way asked for.
    """
    device = device_of(config.device)
    is_auto = config.quantization == "auto"
    plan = Plan(
        config=msgspec.structs.replace(config, quantization="none") if is_auto else config,
        path=path,
        model_config=model_config,
        max_model_len=max_model_len,
        device=device,
        dtype=dtype_of(config, model_config, device),
        keeps_rounding=is_auto and device.type == "cpu" and has_rounded_weights(path),
        report=report,
        check_cache=check_cache,
    )
    return _assemble_rounded(plan) if plan.keeps_rounding else _assemble(plan)


def _assemble_rounded(plan: Plan) -> Assembled:
    """With weights as they are rounded in the file, or where that cannot be, with floats."""
    warnings: tuple[str, ...] = ()
    try:
        return _assemble(plan)
    except HelperBrokenError as reason:
        warnings = (f"weights that are rounded in the file become floats: {reason}",)
    except NoHelperError:
        pass  # nobody has asked for it
    assembled = _assemble(replace(plan, keeps_rounding=False))
    return replace(assembled, warnings=(*warnings, *assembled.warnings))


def _assemble(plan: Plan) -> Assembled:
    config, model_config = plan.config, plan.model_config
    code = (model_config.get("auto_map") or {}) if config.trust_remote_code else {}
    if is_encoder_decoder(model_config):
        if "AutoModelForSeq2SeqLM" in code:
            raise LoadError("encoder-decoders with code of their own are not served")
        return _encoder_decoder(plan)
    has_code = "AutoModelForCausalLM" in code  # it may do anything with the weights of a family
    spec = None if has_code or config.model_impl == "transformers" else describe(model_config)
    if spec is not None:
        return own_decoder(plan, spec)
    if plan.keeps_rounding:
        raise NoHelperError("Transformers' code runs it")
    return foreign_decoder(plan)


def _encoder_decoder(plan: Plan) -> Assembled:
    """Our own, natively or in PyTorch."""
    config, told = without_adapters(plan.config)
    device, dtype, max_model_len = plan.device, plan.dtype, plan.max_model_len
    seq2seq.check_options(config)
    generation_config = read_if_there(plan.path / "generation_config.json")
    saved = open_checkpoint(
        plan.path, dtype, lambda done: plan.report("loading weights", 0.1 + 0.4 * done)
    )
    spec, weights = seq2seq.describe_weights(plan.model_config, generation_config, saved)
    told += told_unused(seq2seq.unused_layers(spec, saved))
    stack = spec.decoder
    plan.check_cache(2 * stack.num_layers * stack.num_heads * stack.head_dim * dtype.itemsize)
    quantization = "none"
    plan.report("packing weights", 0.5)
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
