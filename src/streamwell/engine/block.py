"""The lean decoder: one generic block, assembled from the weights of any family it knows.

Transformers' own modelling code costs two to three times as much per step, most of it in Python
and in unfused projections; and importing it takes longer than loading a small model. What varies
between families is declared in `DecoderSpec` and settled when a block is made, not when it runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch.nn import functional

from streamwell.engine.attention import Attention, LayerShape
from streamwell.engine.families import DecoderSpec
from streamwell.engine.feed_forward import make_feed_forward
from streamwell.engine.linear import Adapted, LinearMaker
from streamwell.engine.operations import IN_PYTORCH, Operations
from streamwell.engine.quantization import head_quantization, rounded
from streamwell.engine.rotary import Rotary, Turns

Weights = Mapping[str, torch.Tensor]
Norm = Callable[[torch.Tensor], torch.Tensor]


class Block:
    """One layer: norm, fused q/k/v, rotary, attention, output, norm, feed-forward layer."""

    def __init__(
        self,
        spec: DecoderSpec,
        layer: int,
        weights: Weights,
        quantization: str,
        halves: Halves,
        operations: Operations,
    ) -> None:
        prefix = f"model.layers.{layer}."
        attention = f"{prefix}self_attn."
        self._layer = layer
        self._halves = halves
        self._num_kv_heads, self._head_dim = spec.num_kv_heads, spec.head_dim
        self._scale, self._window = spec.scale, spec.windows[layer]
        self._softcap = spec.attention_softcap
        self._sinks = weights[f"{attention}sinks.weight"] if spec.has_sinks else None
        linear = LinearMaker(weights, quantization, may_pack=halves.may_pack)
        self._qkv = linear(*(f"{attention}{name}_proj" for name in "qkv"))
        self._out = linear(f"{attention}o_proj")
        self._feed_forward = make_feed_forward(spec, layer, linear, operations)
        self._rotate = operations.rotate

        def norm(name: str, placements: tuple[str, ...]) -> Norm:
            if spec.norm_placement not in placements:
                return _unchanged
            return make_norm(spec, weights, prefix + name)

        second = "input_layernorm" if spec.shares_norm else "post_attention_layernorm"
        self._norm_in = norm("input_layernorm", ("before", "around"))
        self._norm_mid = norm(second, ("before", "around"))
        self._norm_attended = norm("post_self_attn_layernorm", ("after", "around"))
        self._norm_out = norm("post_mlp_layernorm", ("after", "around"))
        self._qk_norm = _qk_norm(spec, weights, attention)
        self._is_parallel = spec.is_parallel
        self._multiplier = spec.residual_multiplier

    def forward(
        self,
        x: torch.Tensor,
        turns: Turns,
        attention: Attention,
        adapted: Adapted | None = None,
    ) -> torch.Tensor:
        """`[num_tokens, hidden_size]` in and out."""
        query, key, value = self._halves.before(self, x, turns, adapted)
        attended = attention(
            self._layer,
            query,
            key,
            value,
            scale=self._scale,
            window=self._window,
            softcap=self._softcap,
            sinks=self._sinks,
        )
        return self._halves.after(self, x, attended, adapted)

    def before(
        self, x: torch.Tensor, turns: Turns, adapted: Adapted | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value of attention, each `[num_tokens, heads, head_dim]`."""
        qkv = self._qkv(self._norm_in(x), adapted).view(x.shape[0], -1, self._head_dim)
        both, value = qkv[:, : -self._num_kv_heads], qkv[:, -self._num_kv_heads :]
        if self._qk_norm is not None:
            both = self._qk_norm(both)
        if turns is not None:
            both = self._rotate(both, *turns)
        return both[:, : -self._num_kv_heads], both[:, -self._num_kv_heads :], value

    def after(
        self, x: torch.Tensor, attended: torch.Tensor, adapted: Adapted | None
    ) -> torch.Tensor:
        """The block's output, from its input and what attention gave."""
        attended = self._norm_attended(self._out(attended.flatten(1), adapted))
        residual = torch.add(x, attended, alpha=self._multiplier)
        inner = self._norm_mid(x if self._is_parallel else residual)
        return torch.add(
            residual, self._norm_out(self._feed_forward(inner, adapted)), alpha=self._multiplier
        )


class Halves(NamedTuple):
    """A block's code on both sides of attention: as it is written, or compiled."""

    before: Callable[
        [Block, torch.Tensor, Turns, Adapted | None],
        tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    ]
    after: Callable[[Block, torch.Tensor, torch.Tensor, Adapted | None], torch.Tensor]
    #: Whether it takes linear layers in oneDNN's layout.
    may_pack: bool


EAGER = Halves(Block.before, Block.after, may_pack=True)


class LeanDecoder:
    """A whole decoder over paged attention."""

    def __init__(
        self,
        spec: DecoderSpec,
        weights: Weights,
        quantization: str = "none",
        halves: Halves = EAGER,
        operations: Operations = IN_PYTORCH,
        *,
        max_positions: int | None = None,
    ) -> None:
        """Lays out the weights; `max_positions` bounds the positions that are ever asked for."""
        table = weights["model.embed_tokens.weight"]
        self._embedding = rounded(table, head_quantization(quantization))
        self.vocab_size, _ = self._embedding.shape
        self.dtype, self.device = self._embedding.dtype, self._embedding.device
        shape = LayerShape(spec.num_kv_heads, spec.head_dim, spec.head_dim)
        self.shapes = [shape] * spec.num_layers
        self._spec = spec
        self._embedding_factor = torch.tensor(
            spec.embedding_multiplier, dtype=self.dtype, device=self.device
        )
        self._positions: torch.Tensor | None = None
        if spec.has_position_embeddings:
            self._positions = weights["model.embed_positions.weight"]
        num_positions = max_positions or spec.max_position_embeddings
        self._rotary = Rotary(spec, num_positions, self.dtype, self.device)
        self._blocks = [
            Block(spec, layer, weights, quantization, halves, operations)
            for layer in range(spec.num_layers)
        ]
        self._norm = make_norm(spec, weights, "model.norm")
        head = "model.embed_tokens" if spec.tie_word_embeddings else "lm_head"
        self._head = LinearMaker(weights, head_quantization(quantization))(head)

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        rows: torch.Tensor,
        attention: Attention,
        adapted: Adapted | None = None,
    ) -> torch.Tensor:
        """Logits `[len(rows), vocab_size]` of some rows of `[num_tokens]` ids."""
        x = self._embed(token_ids, positions)
        turns = self._rotary.at(positions)
        for block, kind in zip(self._blocks, self._rotary.kind_of_layer, strict=True):
            x = block.forward(x, turns[kind], attention, adapted)
        logits = self._head(self._norm(x[rows]))
        if self._spec.logits_divisor != 1:
            logits = logits / self._spec.logits_divisor
        if self._spec.logits_softcap is not None:
            logits = self._spec.logits_softcap * torch.tanh(logits / self._spec.logits_softcap)
        return logits

    def _embed(self, token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = functional.embedding(token_ids, self._embedding)
        if self._spec.embedding_multiplier != 1:
            x = x * self._embedding_factor
        if self._positions is not None:
            x = x + functional.embedding(positions, self._positions)
        return x


def make_norm(spec: DecoderSpec, weights: Weights, name: str) -> Norm:
    """A norm over the last dimension, of the kind that the model has."""
    weight = weights[f"{name}.weight"]
    shape, eps = weight.shape, spec.norm_eps
    if spec.norm == "layer":
        bias = weights[f"{name}.bias"]
        return functools.partial(
            functional.layer_norm, normalized_shape=shape, weight=weight, bias=bias, eps=eps
        )
    if spec.norm == "rms_plus_one":
        return functools.partial(_rms_norm_in_float, weight=1.0 + weight.float(), eps=eps)
    # root mean square norm (Zhang and Sennrich 2019)
    return functools.partial(functional.rms_norm, normalized_shape=shape, weight=weight, eps=eps)


def _rms_norm_in_float(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    # one and a little more would be rounded to one in bfloat16
    return functional.rms_norm(x.float(), weight.shape, weight, eps).type_as(x)


def _qk_norm(spec: DecoderSpec, weights: Weights, attention: str) -> Norm | None:
    """The norm of `[num_tokens, heads, head_dim]` queries and keys side by side."""
    if spec.qk_norm is None:
        return None
    norm_q, norm_k = (make_norm(spec, weights, f"{attention}{name}_norm") for name in "qk")
    is_whole = spec.qk_norm == "projection"

    def normed(both: torch.Tensor) -> torch.Tensor:
        query, key = both[:, : spec.num_heads], both[:, spec.num_heads :]
        if is_whole:
            whole = torch.cat((norm_q(query.flatten(1)), norm_k(key.flatten(1))), -1)
            return whole.view(both.shape)
        return torch.cat((norm_q(query), norm_k(key)), 1)

    return normed


def _unchanged(x: torch.Tensor) -> torch.Tensor:
    return x
