"""The feed-forward layer of a block: gated or not, or a mixture of experts."""

from __future__ import annotations

import functools
from typing import Protocol

import torch
from torch.nn import functional

from streamwell.engine.families import DecoderSpec, Experts
from streamwell.engine.linear import AdaptableLinear, Adapted, Linear, LinearMaker


class FeedForward(Protocol):
    """The feed-forward layer of a block."""

    def __call__(self, x: torch.Tensor, adapted: Adapted | None = None) -> torch.Tensor:
        """`[num_tokens, hidden_size]` in and out."""
        ...


_ACTIVATIONS: dict[str, Linear] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": functools.partial(functional.gelu, approximate="tanh"),
}


def make_feed_forward(spec: DecoderSpec, layer: int, make_linear: LinearMaker) -> FeedForward:
    """The feed-forward layer of a block; `make_linear` takes names of weights."""
    name = f"model.layers.{layer}.mlp."
    experts = spec.experts_of(layer)
    if experts is not None:
        return _Mixture(spec, experts, name, make_linear)
    return _dense(spec, name, make_linear)


def _dense(spec: DecoderSpec, name: str, make_linear: LinearMaker) -> FeedForward:
    activation = _ACTIVATIONS[spec.activation]
    down = make_linear(f"{name}down_proj")
    if not spec.is_gated:
        return _Plain(make_linear(f"{name}up_proj"), activation, down)
    gate_up = make_linear(f"{name}gate_proj", f"{name}up_proj")
    return _Gated(gate_up, activation, down)


class _Plain:
    def __init__(self, up: AdaptableLinear, activation: Linear, down: AdaptableLinear) -> None:
        self._up, self._activation, self._down = up, activation, down

    def __call__(self, x: torch.Tensor, adapted: Adapted | None = None) -> torch.Tensor:
        return self._down(self._activation(self._up(x, adapted)), adapted)


class _Gated:
    def __init__(self, gate_up: AdaptableLinear, activation: Linear, down: AdaptableLinear) -> None:
        self._gate_up, self._activation, self._down = gate_up, activation, down

    def __call__(self, x: torch.Tensor, adapted: Adapted | None = None) -> torch.Tensor:
        gate, up = self._gate_up(x, adapted).chunk(2, -1)
        return self._down(self._activation(gate) * up, adapted)


class _Mixture:
    """A mixture of experts (Shazeer et al. 2017): each token goes to the few that score highest.

    Adapters change nothing of it.
    """

    def __init__(
        self, spec: DecoderSpec, experts: Experts, name: str, make_linear: LinearMaker
    ) -> None:
        self._num_per_token, self._sums_to_one = experts.num_per_token, experts.sums_to_one
        self._router = make_linear(f"{name}gate", may_round=False)
        self._experts = [
            _dense(spec, f"{name}experts.{index}.", make_linear) for index in range(experts.count)
        ]
        self._shared: FeedForward | None = None
        if experts.has_shared:
            self._shared = _dense(spec, f"{name}shared_expert.", make_linear)
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
