"""Functions that Transformers' code calls by name, replaced in the layers of one model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any

from torch import nn


def replace_functions(model: nn.Module, functions: Mapping[str, Callable[..., Any]]) -> int:
    """Have layers call these in place of the functions of these names; how many layers do so.

    Their methods find functions in their module. Each such layer gets a copy of its method that
    finds ours, so that other models, which share the module, compute as before.
    """
    count = 0
    for layer in model.modules():
        method = inspect.unwrap(type(layer).forward)
        found = {name: own for name, own in functions.items() if name in method.__code__.co_names}
        if found:
            layer.forward = MethodType(_finding(method, found), layer)
            count += 1
    return count


def restore_functions(model: nn.Module) -> None:
    """Have layers call the functions of their modules again."""
    for layer in model.modules():
        if isinstance(vars(layer).get("forward"), MethodType):
            del layer.forward


def _finding(method: FunctionType, found: Mapping[str, Callable[..., Any]]) -> FunctionType:
    copy = FunctionType(
        method.__code__,
        {**method.__globals__, **found},
        method.__name__,
        method.__defaults__,
        method.__closure__,
    )
    copy.__kwdefaults__ = method.__kwdefaults__
    return copy
