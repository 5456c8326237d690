"""PyTorch's Muon, which computes in bfloat16 on every processor, in what is fast on this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from training.trainer import has_fast_bfloat16


class _KeptInFloat32(TorchFunctionMode):
    """Copies a tensor that is to be turned to bfloat16, and leaves its type."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if func is torch.Tensor.bfloat16:
            func = torch.Tensor.clone
        return func(*args, **(kwargs or {}))


class Muon(torch.optim.Muon):
    """Muon whose updates take no longer than the rest of a step where bfloat16 is emulated."""

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every matrix that has a gradient; returns the closure's loss, if there is one."""
        with nullcontext() if has_fast_bfloat16() else _KeptInFloat32():
            return super().step(closure)
