"""The lean decoder: one generic block, assembled from the weights of any family it knows.

Transformers' own modelling code costs two to three times as much per step, most of it in Python
and in unfused projections; and importing it takes longer than loading a small model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch.nn import functional

from streamwell.engine.attention import Attention, LayerShape
from streamwell.engine.families import DecoderSpec
from streamwell.engine.linear import Linear, make_linear
from streamwell.engine.quantization import head_quantization, rounded

Weights = Mapping[str, torch.Tensor]


def rotary_angles(spec: DecoderSpec, num_positions: int) -> torch.Tensor:
    """`[num_positions, head_dim / 2]` float32: how far each pair turns at each position."""
    steps = torch.arange(0, spec.head_dim, 2, dtype=torch.float32) / spec.head_dim
    return torch.outer(torch.arange(num_positions).float(), 1.0 / spec.rope_theta**steps)


class Rotary:
    """Rotary position embeddings (Su et al. 2021), halves rotated as in Transformers' Llama."""

    def __init__(self, spec: DecoderSpec, dtype: torch.dtype, device: torch.device) -> None:
        angles = rotary_angles(spec, spec.max_position_embeddings)
        angles = torch.cat((angles, angles), -1)
        self._cos = angles.cos().to(device, dtype)
        self._sin = angles.sin().to(device, dtype)

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of `[num_tokens]` positions, each `[num_tokens, 1, head_dim]`."""
        return self._cos[positions][:, None], self._sin[positions][:, None]


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


class Block:
    """One layer: norm, fused q/k/v, rotary, attention, output, norm, fused gate/up, down."""

    def __init__(
        self, spec: DecoderSpec, layer: int, weights: Weights, quantization: str, halves: Halves
    ) -> None:
        prefix = f"model.layers.{layer}."
        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        self._spec = spec
        self._layer = layer
        self._halves = halves

        def fused(*names: str) -> Linear:
            return _fused(weights, names, quantization, may_pack=halves.may_pack)

        self._qkv = fused(*(f"{attention}{name}_proj" for name in "qkv"))
        self._out = fused(f"{attention}o_proj")
        self._gate_up = fused(f"{mlp}gate_proj", f"{mlp}up_proj")
        self._down = fused(f"{mlp}down_proj")
        self._norm_in = weights[f"{prefix}input_layernorm.weight"]
        self._norm_mid = weights[f"{prefix}post_attention_layernorm.weight"]
        self._norm_q = weights.get(f"{attention}q_norm.weight")
        self._norm_k = weights.get(f"{attention}k_norm.weight")

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, attention: Attention
    ) -> torch.Tensor:
        """`[num_tokens, hidden_size]` in and out."""
        query, key, value = self._halves.before(self, x, cos, sin)
        attended = attention(
            self._layer,
            query,
            key,
            value,
            scale=self._spec.head_dim**-0.5,
            window=self._spec.windows[self._layer],
        )
        return self._halves.after(self, x, attended)

    def before(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value of attention, each `[num_tokens, heads, head_dim]`."""
        spec = self._spec
        qkv = self._qkv(_rms_norm(x, self._norm_in, spec.norm_eps))
        qkv = qkv.view(x.shape[0], -1, spec.head_dim)
        num_kv_heads = spec.num_kv_heads
        query = qkv[:, : spec.num_heads]
        key, value = qkv[:, -2 * num_kv_heads : -num_kv_heads], qkv[:, -num_kv_heads:]
        if self._norm_q is not None and self._norm_k is not None:
            query = _rms_norm(query, self._norm_q, spec.norm_eps)
            key = _rms_norm(key, self._norm_k, spec.norm_eps)
        return _rotate(query, cos, sin), _rotate(key, cos, sin), value

    def after(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """The block's output, from its input and what attention gave."""
        x = x + self._out(attended.flatten(1))
        gate, up = self._gate_up(_rms_norm(x, self._norm_mid, self._spec.norm_eps)).chunk(2, -1)
        return x + self._down(functional.silu(gate) * up)


class Halves(NamedTuple):
    """A block's code on both sides of attention: as it is written, or compiled."""

    before: Callable[
        [Block, torch.Tensor, torch.Tensor, torch.Tensor],
        tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    ]
    after: Callable[[Block, torch.Tensor, torch.Tensor], torch.Tensor]
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
    ) -> None:
        self._embedding = weights["model.embed_tokens.weight"]
        if spec.tie_word_embeddings:
            self._embedding = rounded(self._embedding, head_quantization(quantization))
        self.vocab_size, _ = self._embedding.shape
        self.dtype, self.device = self._embedding.dtype, self._embedding.device
        shape = LayerShape(spec.num_kv_heads, spec.head_dim, spec.head_dim)
        self.shapes = [shape] * spec.num_layers
        self._spec = spec
        self._rotary = Rotary(spec, self.dtype, self.device)
        self._blocks = [
            Block(spec, layer, weights, quantization, halves) for layer in range(spec.num_layers)
        ]
        self._norm = weights["model.norm.weight"]
        head = "model.embed_tokens" if spec.tie_word_embeddings else "lm_head"
        self._head = _fused(weights, (head,), head_quantization(quantization))

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        rows: torch.Tensor,
        attention: Attention,
    ) -> torch.Tensor:
        """Logits `[len(rows), vocab_size]` of some rows of `[num_tokens]` ids."""
        x = functional.embedding(token_ids, self._embedding)
        cos, sin = self._rotary.at(positions)
        for block in self._blocks:
            x = block.forward(x, cos, sin, attention)
        return self._head(_rms_norm(x[rows], self._norm, self._spec.norm_eps))


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Root mean square norm (Zhang and Sennrich 2019) over the last dimension."""
    return functional.rms_norm(x, (x.shape[-1],), weight, eps)


def _fused(
    weights: Weights, names: tuple[str, ...], quantization: str, *, may_pack: bool = True
) -> Linear:
    """One linear layer for several that read the same input."""
    parts = [rounded(weights[f"{name}.weight"], quantization) for name in names]
    weight = parts[0] if len(parts) == 1 else torch.cat(parts)
    biases = [weights[f"{name}.bias"] for name in names if f"{name}.bias" in weights]
    return make_linear(weight, torch.cat(biases) if biases else None, may_pack=may_pack)
