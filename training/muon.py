"""Muon: momentum whose update of a matrix is made orthogonal, in float32 where that is faster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from training.trainer import has_fast_bfloat16

MOMENTUM = 0.95
# Of the polynomial that brings all singular values near one when it is applied so many times.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
TIMES = 5


def orthogonalised(update: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The nearly orthogonal matrix next to a (rows, columns) one, by Newton-Schulz.

    The method and its coefficients are those of https://kellerjordan.github.io/posts/muon/.
    """
    a, b, c = COEFFICIENTS
    is_tall = update.size(0) > update.size(1)
    matrix = update.to(dtype, copy=True)
    if is_tall:
        matrix = matrix.T
    matrix.div_(matrix.norm().clamp(min=1e-7))
    for _ in range(TIMES):
        gram = matrix @ matrix.T
        matrix = torch.addmm(matrix, torch.addmm(gram, gram, gram, beta=b, alpha=c), matrix, beta=a)
    return matrix.T if is_tall else matrix


class Muon(torch.optim.Optimizer):
    """PyTorch's Muon, which computes in bfloat16 on every processor, but in what is fast on this.

    Where bfloat16 is not multiplied by hardware, PyTorch's takes longer than the rest of a step.
    Updates are as large as AdamW's would be if `is_like_adamw`, and else as Muon was published.
    """

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter] | Iterable[dict[str, Any]],
        *,
        lr: float = 1e-3,
        weight_decay: float,
        is_like_adamw: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self._is_like_adamw = is_like_adamw
        self._dtype = torch.bfloat16 if has_fast_bfloat16() else torch.float32

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(weight)
                mean = state["momentum_buffer"].lerp_(weight.grad, 1 - MOMENTUM)
                update = orthogonalised(weight.grad.lerp(mean, MOMENTUM), self._dtype)
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(update, alpha=-group["lr"] * self._scale(*weight.shape))

    def _scale(self, rows: int, columns: int) -> float:
        """The factor of the rate for a matrix of this shape."""
        if self._is_like_adamw:
            return 0.2 * float(max(rows, columns)) ** 0.5
        return max(1.0, rows / columns) ** 0.5
