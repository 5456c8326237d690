"""Puts a decoder together that our decoders do not know: on Transformers' code, over our cache.

On a CPU the native helper computes what it can of it: linear layers, and states of some kinds.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import msgspec

from streamwell.core.errors import LoadError
from streamwell.engine.assembled import Assembled, Plan, without_adapters
from streamwell.engine.checkpoint import told_unused
from streamwell.engine.model_runner import Model
from streamwell.engine.native import BLOCK_SIZE
from streamwell.engine.native_choice import (
    HelperBrokenError,
    NoHelperError,
    check_helper,
    choose_helper,
    warnings_without,
)
from streamwell.engine.quantization import in_effect
from streamwell.engine.torch_model import TorchModel
from streamwell.models.weights import is_gguf

if TYPE_CHECKING:
    from streamwell.engine.stateful_model import StatefulModel
    from streamwell.engine.transformers_model import TransformersDecoder

_SLOW = "PyTorch computes states, more slowly than the native helper, which comes to something else"


def foreign_decoder(plan: Plan) -> Assembled:
    """A decoder on Transformers' code that has been tried out.

    Raises:
        LoadError: it cannot be loaded in the way asked for.
    """
    config = plan.config
    _check_options(plan)
    helper, warnings = _helper(plan)
    plan.report("importing transformers", 0.1)
    from streamwell.engine.stateful_model import try_out_states
    from streamwell.engine.transformers_model import TransformersDecoder

    decoder = TransformersDecoder(
        plan.path, plan.dtype, plan.device, trust_remote_code=config.trust_remote_code
    )
    if not decoder.layers_with_state:
        quantization, told = _pack(plan, decoder, helper)
        state_bytes = 0
        model: Model = TorchModel(decoder, config.block_size)
    else:
        if config.num_speculative_tokens:
            raise LoadError("nothing can be guessed for models that keep a state of each sequence")
        model, state_bytes, slow = _with_states(plan, decoder, helper)
        quantization, told = _pack(plan, decoder, helper)
        told += slow
        try_out_states(model, decoder, compares=False)
    _, without = without_adapters(config)
    return Assembled(
        model=model,
        implementation="transformers",
        quantization=quantization,
        warnings=(*told_unused(decoder.unused), *without, *warnings, *told),
        state_bytes=state_bytes,
    )


def _check_options(plan: Plan) -> None:
    """Raises `LoadError` for what only our decoders can do."""
    config = plan.config
    if is_gguf(plan.path):
        raise LoadError("GGUF files run on our decoders only, not on Transformers' code")
    if config.model_impl in ("native", "torch"):
        raise LoadError(f"--model-impl {config.model_impl} does not know this architecture")
    if config.compile:
        raise LoadError("--compile works with our decoders only, not on Transformers' code")


def _with_states(
    plan: Plan, decoder: TransformersDecoder, helper: ctypes.CDLL | None
) -> tuple[StatefulModel, int, tuple[str, ...]]:
    """The model, the bytes of a sequence's states, and what is to be said.

    The helper computes them, if it can.
    """
    from streamwell.engine.stateful_model import StatefulModel, try_out_states

    model = StatefulModel(decoder, plan.config.block_size)
    is_used = None if helper is None else decoder.use_functions_of(helper)
    if is_used:
        try:
            return model, try_out_states(model, decoder), ()
        except (LoadError, RuntimeError, TypeError, ValueError):
            decoder.use_own_functions()
            model = StatefulModel(decoder, plan.config.block_size)
    slow = () if is_used is None else (_SLOW,)
    return model, try_out_states(model, decoder), slow


def _pack(
    plan: Plan, decoder: TransformersDecoder, helper: ctypes.CDLL | None
) -> tuple[str, tuple[str, ...]]:
    """Pack linear layers on a CPU: what they are rounded to, and what is to be said."""
    from streamwell.engine.transformers_linears import told

    quantization = plan.config.quantization
    if plan.device.type != "cpu" or "quantization_config" in plan.model_config:
        return "none", ()
    plan.report("packing weights", 0.9)
    packed = decoder.pack(quantization, helper)
    if quantization == "none":
        return "none", ()
    if not packed.widths:
        raise LoadError("--quantization does not work with this model: its code needs the weights")
    return in_effect(quantization, packed.widths), told(packed, quantization)


def _helper(plan: Plan) -> tuple[ctypes.CDLL | None, tuple[str, ...]]:
    """The native helper, where it can help, and what is to be said if it fails.

    Raises:
        LoadError: weights shall be rounded, and cannot be.
    """
    rounds = plan.config.quantization != "none"
    if rounds and "quantization_config" in plan.model_config:
        raise LoadError("--quantization does not go with weights that come rounded")
    try:
        # the cache is PyTorch's
        config = msgspec.structs.replace(plan.config, block_size=BLOCK_SIZE)
        helper = choose_helper(config, plan.dtype, plan.device, has_parts=True)
        check_helper(helper)
    except NoHelperError as reason:
        if rounds or isinstance(reason, HelperBrokenError):
            return None, warnings_without(plan.config, reason, can_round=False)
        return None, ()
    return helper, ()
