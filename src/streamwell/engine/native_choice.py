"""Whether the native helper runs a model, and what is said where it does not."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TypeVar

import torch

from streamwell.core.errors import LoadError
from streamwell.engine.messages import EngineConfig
from streamwell.engine.model_runner import Model
from streamwell.engine.native import BLOCK_SIZE, library
from streamwell.engine.native.self_test import passes_self_test

#: What a helper that does not fit this machine, or is damaged, does to its callers.
_FAILURES = (ctypes.ArgumentError, AttributeError, OSError, RuntimeError)


_Model = TypeVar("_Model", bound=Model)


class NoHelperError(Exception):
    """The native helper does not run this model; the message says why."""


class HelperBrokenError(NoHelperError):
    """It should, but it fails."""


def choose_helper(
    config: EngineConfig, dtype: torch.dtype, device: torch.device, *, has_parts: bool
) -> ctypes.CDLL:
    """The native helper, if it is there, has the parts of this model, and can run it.

    Raises:
        NoHelperError: it cannot.
    """
    helper = library.best()
    obstacles = {
        "--model-impl torch was given": config.model_impl == "torch",
        "--compile was given": config.compile,
        "it is not compiled for this machine": helper is None,
        "it computes on a CPU only": device.type != "cpu",
        f"it does not compute in {_name_of(dtype)} here": not _computes(helper, dtype),
        f"its cache blocks hold {BLOCK_SIZE} tokens": config.block_size != BLOCK_SIZE,
        "it does not do this model's sizes": not has_parts,
    }
    reasons = [reason for reason, stands in obstacles.items() if stands]
    if reasons or helper is None:
        raise NoHelperError(reasons[0])
    return helper


def run_by(helper: ctypes.CDLL, build: Callable[[], _Model]) -> _Model:
    """What `build` makes of a helper that computes rightly, and tries out.

    Raises:
        HelperBrokenError: the helper fails, whatever the model.
        LoadError: the model is at fault.
    """
    try:
        check_helper(helper)
        return build()
    except _FAILURES as error:
        raise HelperBrokenError(f"it failed ({error!r})") from error


def check_helper(helper: ctypes.CDLL) -> None:
    """Raises `HelperBrokenError`: it computes wrongly."""
    if not passes_self_test(helper):
        raise HelperBrokenError("it computes wrongly on this machine")


def warnings_without(
    config: EngineConfig, reason: NoHelperError, *, can_round: bool = True
) -> tuple[str, ...]:
    """What is slower than the person who started the server may think.

    `can_round` says whether PyTorch computes with weights that are rounded.

    Raises:
        LoadError: the helper was asked for, or what only it can do.
    """
    if config.model_impl == "native":
        raise LoadError(f"the native helper cannot run this model: {reason}") from reason
    if config.quantization != "none" and not can_round:
        raise LoadError(
            f"--quantization {config.quantization} needs the native helper, which does not run "
            f"this model: {reason}"
        ) from reason
    warnings = []
    if isinstance(reason, HelperBrokenError):
        warnings.append(f"PyTorch computes, more slowly than the native helper would: {reason}")
    if config.quantization != "none":
        warnings.append(
            f"--quantization {config.quantization} rounds the weights but saves neither memory nor "
            f"time, since the native helper does not run this model: {reason}"
        )
    return tuple(warnings)


def _computes(helper: ctypes.CDLL | None, dtype: torch.dtype) -> bool:
    """Whether the helper has linear layers in this dtype."""
    if dtype is torch.bfloat16:
        return helper is not None and bool(helper.sw_has_bfloat16())
    return dtype is torch.float32


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
