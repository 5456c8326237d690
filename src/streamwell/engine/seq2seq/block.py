"""The block of encoders and decoders, assembled from the weights of any family that is known."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch
from torch.nn import functional

from streamwell.core.errors import LoadError
from streamwell.engine.linear import Linear, make_linear
from streamwell.engine.seq2seq.attention import Reads, attend
from streamwell.engine.seq2seq.embeddings import Weights
from streamwell.engine.seq2seq.families import Seq2SeqSpec, Stack

#: `[num_tokens, hidden_size]` in and out.
Layer = Callable[[torch.Tensor], torch.Tensor]

_ACTIVATIONS: Mapping[str, Layer] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_new": functools.partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
    "swish": functional.silu,
}


def make_norm(spec: Seq2SeqSpec, weights: Weights, name: str) -> Layer:
    """The family's norm over the last dimension."""
    weight = weights[f"{name}.weight"]
    shape, eps = tuple(weight.shape), spec.norm_eps
    if spec.is_rms_norm:
        return lambda x: functional.rms_norm(x, shape, weight, eps)
    bias = weights[f"{name}.bias"]
    return lambda x: functional.layer_norm(x, shape, weight, bias, eps)


def fused(weights: Weights, *names: str) -> Linear:
    """One linear layer for several that read the same input; some may have no bias."""
    parts = [weights[f"{name}.weight"] for name in names]
    biases = [
        weights.get(f"{name}.bias", part.new_zeros(part.shape[0]))
        for name, part in zip(names, parts, strict=True)
    ]
    has_bias = any(f"{name}.bias" in weights for name in names)
    return make_linear(torch.cat(parts), torch.cat(biases) if has_bias else None)


class Block:
    """Self-attention, attention to the encoder's output if it is a decoder's, feed-forward."""

    def __init__(self, spec: Seq2SeqSpec, stack: Stack, weights: Weights, prefix: str) -> None:
        self._is_norm_first = spec.is_norm_first
        self._heads = (stack.num_heads, stack.head_dim)
        self._scale = stack.head_dim**-0.5 if spec.is_attention_scaled else 1.0
        self._qkv = fused(weights, *(f"{prefix}.self.{part}" for part in "qkv"))
        self._out = fused(weights, f"{prefix}.self.o")
        self._norm = make_norm(spec, weights, f"{prefix}.self_norm")
        self._feed_forward = _feed_forward(spec, weights, prefix)
        self._inner_norm = make_norm(spec, weights, f"{prefix}.inner_norm")
        self._has_cross = f"{prefix}.cross.q.weight" in weights
        if self._has_cross:
            self._cross_query = fused(weights, f"{prefix}.cross.q")
            self._cross_out = fused(weights, f"{prefix}.cross.o")
            self._cross_norm = make_norm(spec, weights, f"{prefix}.cross_norm")
            self._cross_key_value = fused(weights, f"{prefix}.cross.k", f"{prefix}.cross.v")

    def encode(self, x: torch.Tensor, reads: tuple[Reads, ...]) -> torch.Tensor:
        """`[num_tokens, hidden_size]` in and out; tokens see those of their own sequence."""

        def attention(x: torch.Tensor) -> torch.Tensor:
            query, key_value = self._split(x)
            return self._out(attend(query, key_value, reads, self._scale))

        x = self._around(x, self._norm, attention)
        return self._around(x, self._inner_norm, self._feed_forward)

    def remember(self, cache: torch.Tensor, slots: torch.Tensor, encoded: torch.Tensor) -> None:
        """Write what the decoder's block sees of the encoder's output `[num_tokens, hidden]`."""
        key_value = self._cross_key_value(encoded)
        cache.index_copy_(0, slots, key_value.view(-1, 2, *self._heads))

    def decode(
        self,
        x: torch.Tensor,
        cache: torch.Tensor,
        slots: torch.Tensor,
        self_reads: tuple[Reads, ...],
        cross_reads: tuple[Reads, ...],
    ) -> torch.Tensor:
        """`[num_tokens, hidden_size]` in and out.

        Args:
            x: the new tokens.
            cache: `[num_slots, 2, num_heads, head_dim]`, keys and values of this layer.
            slots: `[num_tokens]` int64, where theirs go.
            self_reads: what they read of their own sequences, themselves included.
            cross_reads: what they read of the encoder's output.
        """

        def attention(x: torch.Tensor) -> torch.Tensor:
            query, key_value = self._split(x)
            cache.index_copy_(0, slots, key_value)
            return self._out(attend(query, cache, self_reads, self._scale))

        def cross_attention(x: torch.Tensor) -> torch.Tensor:
            query = self._cross_query(x).view(-1, *self._heads)
            return self._cross_out(attend(query, cache, cross_reads, self._scale))

        x = self._around(x, self._norm, attention)
        x = self._around(x, self._cross_norm, cross_attention)
        return self._around(x, self._inner_norm, self._feed_forward)

    def _split(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries `[num_tokens, num_heads, head_dim]`; keys and values as the cache has them."""
        qkv = self._qkv(x).view(x.shape[0], 3, *self._heads)
        return qkv[:, 0], qkv[:, 1:]

    def _around(self, x: torch.Tensor, norm: Layer, part: Layer) -> torch.Tensor:
        """A part of the block with its norm and the way around it."""
        return x + part(norm(x)) if self._is_norm_first else norm(x + part(x))


def _feed_forward(spec: Seq2SeqSpec, weights: Weights, prefix: str) -> Layer:
    if spec.activation not in _ACTIVATIONS:
        raise LoadError(f"the activation {spec.activation!r} is not known")
    activation = _ACTIVATIONS[spec.activation]
    down = fused(weights, f"{prefix}.down")
    if not spec.is_gated:
        up = fused(weights, f"{prefix}.up")
        return lambda x: down(activation(up(x)))
    gate_up = fused(weights, f"{prefix}.gate", f"{prefix}.up")

    def gated(x: torch.Tensor) -> torch.Tensor:
        gate, value = gate_up(x).chunk(2, -1)
        return down(activation(gate) * value)

    return gated
