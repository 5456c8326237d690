"""The native decoder: the same blocks as `engine.block`, run by the compiled helper in one call.

Arithmetic is float32 whatever the weights are stored as, except that linear layers in bfloat16
round their inputs to it. Every row of a step is computed in the same order of operations whoever
its neighbours are: a token does not depend on the batch, on how a prompt was cut into chunks, or on
what the cache already held.
"""

from __future__ import annotations

import ctypes

import numpy as np
import torch

from streamwell.engine.block import Weights
from streamwell.engine.families import DecoderSpec, Rope
from streamwell.engine.native.batch import BLOCK_SIZE, Batch, Buffers
from streamwell.engine.native.library import (
    CacheStruct,
    DecoderStruct,
    Epilogue,
    HeadsStruct,
    LayerStruct,
)
from streamwell.engine.native.linear import PackedLinear, interleave, storage_kind
from streamwell.engine.quantization import head_quantization
from streamwell.engine.rotary import frequencies
from streamwell.engine.sequence import Chunk

_LANES = 16
_GATES = {"silu": Epilogue.GATED_SILU, "gelu_tanh": Epilogue.GATED_GELU}
#: Variations of the block that the helper has. What is declared anew keeps a model away by itself.
_VARIATIONS = frozenset(
    {
        "norm",
        "norm_placement",
        "qk_norm",
        "activation",
        "attention_scale",
        "attention_softcap",
        "logits_softcap",
        "logits_divisor",
        "embedding_multiplier",
        "residual_multiplier",
    }
)


def supports(spec: DecoderSpec, weights: Weights) -> bool:
    """Whether the helper has this model's variations, and its fixed widths fit."""
    has_block = (
        spec.variations <= _VARIATIONS
        and spec.norm != "layer"
        and spec.activation in _GATES
        and (spec.residual_multiplier == 1 or spec.norm_placement == "before")
    )
    if not has_block or spec.head_dim % _LANES:
        return False
    inner_sizes = (
        weights[f"model.layers.{layer}.mlp.gate_proj.weight"].shape[0]
        for layer in range(spec.num_layers)
    )
    return all(size % _LANES == 0 for size in inner_sizes)


class NativeDecoder:
    """A whole decoder with its cache, on the CPU."""

    def __init__(
        self,
        library: ctypes.CDLL,
        spec: DecoderSpec,
        weights: Weights,
        *,
        max_positions: int,
        dtype: torch.dtype = torch.float32,
        quantization: str = "none",
    ) -> None:
        """Packs the weights; `max_positions` bounds the positions that are ever asked for.

        `dtype` is what linear layers multiply in: float32, or bfloat16 where the helper has it.
        """
        self.dtype, self.device = dtype, torch.device("cpu")
        self._library = library
        self._spec = spec
        pair_key_dim = library.sw_pair_key_dim(spec.head_dim) if dtype is torch.bfloat16 else 0
        self._has_pair_cache = pair_key_dim > 0
        self._cached = np.dtype(np.uint16 if self._has_pair_cache else np.float32)
        #: Numbers per kv head and position: those of a key may be padded.
        self._key_dim, self._value_dim = pair_key_dim or spec.head_dim, spec.head_dim
        self._quantization = quantization
        self._kept: list[torch.Tensor | PackedLinear] = []  # what the structures point to
        self._layers = (LayerStruct * spec.num_layers)()
        self._turns = {rope: self._rotary_tables(rope, max_positions) for rope in set(spec.ropes)}
        for layer, struct in enumerate(self._layers):
            self._fill_layer(struct, layer, weights)
        embedding = weights["model.embed_tokens.weight"]
        self.vocab_size, self._hidden_size = embedding.shape
        tied = spec.tie_word_embeddings
        self._head = self._packed(
            weights, ["model.embed_tokens" if tied else "lm_head"], head_quantization(quantization)
        )
        self._embedding = None if tied else embedding
        self._struct = self._decoder_struct(weights)
        self._buffers = self._make_buffers()

    @property
    def bytes_per_token(self) -> int:
        """What the cache takes per token, over all layers."""
        spec = self._spec
        per_head = (self._key_dim + self._value_dim) * self._cached.itemsize
        return spec.num_layers * spec.num_kv_heads * per_head

    def allocate(self, num_blocks: int) -> None:
        """Make the cache; block 0 belongs to nobody."""
        heads = (num_blocks + 1) * BLOCK_SIZE * self._spec.num_kv_heads
        # numpy's zeros are untouched pages: memory is used as blocks are
        self.cache = [
            (
                np.zeros(heads * self._key_dim, self._cached),
                np.zeros(heads * self._value_dim, self._cached),
            )
            for _ in self._layers
        ]
        for struct, (keys, values) in zip(self._layers, self.cache, strict=True):
            struct.cache = CacheStruct(keys.ctypes.data, values.ctypes.data)

    def forward(self, chunks: list[Chunk], rows: list[int]) -> torch.Tensor:
        """Logits `[len(rows), vocab_size]` of some rows of the chunks' tokens, end to end.

        The tensor is overwritten by the next call.
        """
        token_ids = np.array([i for c in chunks for i in c.token_ids], np.int64)
        buffers = self._buffers.of(len(token_ids))
        self._embed(torch.from_numpy(token_ids), buffers["x"][: len(token_ids)])
        batch = Batch(chunks, rows)
        logits = self._buffers.logits(len(rows))
        self._library.sw_forward(self._struct, batch.struct(buffers, logits))
        if (cap := self._spec.logits_softcap) is not None:
            logits.div_(cap).tanh_().mul_(cap)
        return logits

    def _embed(self, token_ids: torch.Tensor, out: torch.Tensor) -> None:
        if self._embedding is None:
            self._library.sw_unpack_rows(
                self._head.struct, token_ids.data_ptr(), len(token_ids), out.data_ptr()
            )
        else:
            out.copy_(self._embedding[token_ids])
        if self._spec.embedding_multiplier != 1:
            out *= self._spec.embedding_multiplier

    def _make_buffers(self) -> Buffers:
        spec = self._spec
        attended = spec.num_heads * spec.head_dim
        widths = {
            "x": self._hidden_size,
            "normed": self._hidden_size,
            "qkv": attended + 2 * spec.num_kv_heads * spec.head_dim,
            "attended": attended,
            "gated": max(layer.down.k for layer in self._layers),
        }
        return Buffers(self._library, widths, self.vocab_size)

    def _fill_layer(self, struct: LayerStruct, layer: int, weights: Weights) -> None:
        prefix = f"model.layers.{layer}."
        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        struct.qkv = self._packed(weights, [f"{attention}{name}_proj" for name in "qkv"]).struct
        struct.out = self._packed(weights, [f"{attention}o_proj"]).struct
        gate_up, bias = _gate_up(weights, mlp)
        struct.gate_up = self._pack(gate_up, bias, self._quantization).struct
        struct.down = self._packed(weights, [f"{mlp}down_proj"]).struct
        placement = self._spec.norm_placement
        if placement in ("before", "around"):
            struct.norm_in = self._norm(weights, f"{prefix}input_layernorm")
            struct.norm_mid = self._norm(weights, f"{prefix}post_attention_layernorm")
        if placement in ("after", "around"):
            struct.norm_attended = self._norm(weights, f"{prefix}post_self_attn_layernorm")
            struct.norm_out = self._norm(weights, f"{prefix}post_mlp_layernorm")
        if self._spec.qk_norm is not None:
            struct.query_norm = self._norm(weights, f"{attention}q_norm")
            struct.key_norm = self._norm(weights, f"{attention}k_norm")
        struct.cosines, struct.sines = self._turns[self._spec.ropes[layer]]
        struct.window = self._spec.windows[layer] or 0

    def _packed(
        self, weights: Weights, names: list[str], quantization: str | None = None
    ) -> PackedLinear:
        """One linear layer for several that read the same input."""
        parts = [weights[f"{name}.weight"] for name in names]
        biases = [weights[f"{name}.bias"] for name in names if f"{name}.bias" in weights]
        weight = parts[0] if len(parts) == 1 else torch.cat(parts)
        bias = torch.cat(biases).float() if biases else None
        return self._pack(weight, bias, quantization or self._quantization)

    def _pack(
        self, weight: torch.Tensor, bias: torch.Tensor | None, quantization: str
    ) -> PackedLinear:
        kind = storage_kind(weight, quantization, self.dtype)
        linear = PackedLinear(self._library, weight, bias, kind, self._spec.residual_multiplier)
        self._kept.append(linear)
        return linear

    def _norm(self, weights: Weights, name: str, divisor: float = 1.0) -> int:
        """The weights of a norm, as the helper multiplies them."""
        weight = weights[f"{name}.weight"].float() + (self._spec.norm == "rms_plus_one")
        return self._keep(weight / divisor)

    def _rotary_tables(self, rope: Rope | None, max_positions: int) -> tuple[int, int]:
        """Cosines and sines, each `[max_positions, head_dim / 2]`."""
        half = self._spec.head_dim // 2
        if rope is None:  # nothing turns
            turning, magnitude = torch.zeros(half), torch.ones(half)
        else:
            turning, magnitude = frequencies(rope, self._spec.head_dim), torch.ones(half)
            magnitude[: rope.dim // 2] = rope.magnitude
        angles = torch.outer(torch.arange(max_positions).float(), turning)
        return self._keep(angles.cos() * magnitude), self._keep(angles.sin() * magnitude)

    def _keep(self, tensor: torch.Tensor) -> int:
        tensor = tensor.contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr()

    def _decoder_struct(self, weights: Weights) -> DecoderStruct:
        spec = self._spec
        num_normed = spec.num_heads if spec.qk_norm == "projection" else 1
        return DecoderStruct(
            layers=self._layers,
            num_layers=spec.num_layers,
            hidden_size=self._hidden_size,
            heads=HeadsStruct(spec.num_heads, spec.num_kv_heads, spec.head_dim),
            norm_width=num_normed * spec.head_dim,
            eps=spec.norm_eps,
            scale=spec.scale,
            softcap=spec.attention_softcap or 0.0,
            final_norm=self._norm(weights, "model.norm", spec.logits_divisor),
            head=self._head.struct,
            gate=_GATES[spec.activation],
            has_pair_cache=self._has_pair_cache,
        )


def _gate_up(weights: Weights, mlp: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weights and bias of both projections, interleaved."""
    weight = interleave(weights[f"{mlp}gate_proj.weight"], weights[f"{mlp}up_proj.weight"])
    if f"{mlp}gate_proj.bias" not in weights:
        return weight, None
    gate, up = weights[f"{mlp}gate_proj.bias"], weights[f"{mlp}up_proj.bias"]
    return weight, interleave(gate[:, None], up[:, None])[:, 0].float()
