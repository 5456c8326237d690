"""Muon: momentum whose update of a matrix is made orthogonal, in float32 where that is faster."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from training.trainer import has_fast_bfloat16

MOMENTUM = 0.95
# Of a polynomial that brings all singular values near one in five steps.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


def orthogonalised(update: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The nearly orthogonal matrix next to one of shape (rows, columns), by Newton-Schulz.

    The method and its coefficients are those of https://kellerjordan.github.io/posts/muon/.
    """
    a, b, c = COEFFICIENTS
    wide = update if update.size(0) <= update.size(1) else update.T
    matrix = (wide / wide.norm().clamp(min=1e-7)).to(dtype)
    for _ in range(STEPS):
        gram = matrix @ matrix.T
        matrix = torch.addmm(matrix, torch.addmm(gram, gram, gram, beta=b, alpha=c), matrix, beta=a)
    return matrix if wide is update else matrix.T


class Muon(torch.optim.Optimizer):
    """PyTorch's Muon, which computes in bfloat16 whatever that costs on this processor.

    On one that does not multiply bfloat16 its updates take longer than all the rest of a step.
    """

    def __init__(
        self, params: Iterable[torch.nn.Parameter], *, lr: float, weight_decay: float
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self._dtype = torch.bfloat16 if has_fast_bfloat16() else torch.float32

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update every matrix that has a gradient; an update is as large as AdamW's would be."""
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
                weight.add_(update, alpha=-group["lr"] * 0.2 * max(weight.shape) ** 0.5)
