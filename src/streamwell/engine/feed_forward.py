"""The feed-forward layer of a block: gated or not, or a mixture of experts."""

from __future__ import annotations

from typing import Protocol

import torch

from streamwell.engine.families import DecoderSpec, Experts
from streamwell.engine.linear import AdaptableLinear, Adapted, LinearMaker
from streamwell.engine.operations import ACTIVATIONS, IN_PYTORCH, Activation, Operations


class FeedForward(Protocol):
    """The feed-forward layer of a block."""

    def __call__(self, x: torch.Tensor, adapted: Adapted | None = None) -> torch.Tensor:
        """`[num_tokens, hidden_size]` in and out."""
        ...


def make_feed_forward(
    spec: DecoderSpec, layer: int, make_linear: LinearMaker, operations: Operations = IN_PYTORCH
) -> FeedForward:
    """The feed-forward layer of a block; `make_linear` takes names of weights."""
    name = f"model.layers.{layer}.mlp."
    experts = spec.experts_of(layer)
    if experts is not None:
        return _Mixture(spec, experts, name, make_linear, operations)
    return _dense(spec, name, make_linear, operations)


def _dense(
    spec: DecoderSpec, name: str, make_linear: LinearMaker, operations: Operations
) -> FeedForward:
    down = make_linear(f"{name}down_proj")
    if not spec.is_gated:
        return _Dense(make_linear(f"{name}up_proj"), ACTIVATIONS[spec.activation], down)
    gate_up = make_linear(f"{name}gate_proj", f"{name}up_proj")
    return _Dense(gate_up, operations.gate(spec.activation), down)


class _Dense:
    """Up, through an activation or a gate, and down."""

    def __init__(self, up: AdaptableLinear, activation: Activation, down: AdaptableLinear) -> None:
        self._up, self._activation, self._down = up, activation, down

    def __call__(self, x: torch.Tensor, adapted: Adapted | None = None) -> torch.Tensor:
        return self._down(self._activation(self._up(x, adapted)), adapted)


class _Mixture:
    """A mixture of experts (Shazeer et al. 2017): each token goes to the few that score highest.

    Adapters change nothing of it.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        experts: Experts,
        name: str,
        make_linear: LinearMaker,
        operations: Operations,
    ) -> None:
        self._num_per_token, self._sums_to_one = experts.num_per_token, experts.sums_to_one
        self._router = make_linear(f"{name}gate", may_round=False)
        self._experts = [
            _dense(spec, f"{name}experts.{index}.", make_linear, operations)
            for index in range(experts.count)
        ]
        self._shared: FeedForward | None = None
        if experts.has_shared:
            self._shared = _dense(spec, f"{name}shared_expert.", make_linear, operations)
            self._shared_gate = make_linear(f"{name}shared_expert_gate", may_round=False)

    def __call__(self, x: torch.Tensor, adapted: Adapted | None = None) -> torch.Tensor:
        scores = self._router(x).float().softmax(-1)
        shares, chosen = scores.topk(self._num_per_token, -1)
        if self._sums_to_one:
            shares = shares / shares.sum(-1, keepdim=True)
        shares = shares.to(x.dtype)
        out = torch.zeros_like(x)
        for index in torch.unique(chosen).tolist():
            rows, places = torch.where(chosen == index)
            out.index_add_(0, rows, self._experts[index](x[rows]) * shares[rows, places, None])
        if self._shared is not None:
            out += self._shared_gate(x).sigmoid() * self._shared(x)
        return out
