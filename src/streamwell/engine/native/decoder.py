"""The native decoder: the same blocks as `engine.block`, run by the compiled helper in one call.

Arithmetic is float32 whatever the weights are stored as, except that linear layers in bfloat16
round their inputs to it where the processor multiplies pairs of it fastest. Every row of a step is
computed in the same order of operations whoever its neighbours are: a token does not depend on the
batch, on how a prompt was cut into chunks, or on what the cache already held.
"""

from __future__ import annotations

import ctypes

import torch

from streamwell.engine.block import Weights
from streamwell.engine.families import DecoderSpec, Rope
from streamwell.engine.lora.table import AdapterTable
from streamwell.engine.native.batch import Batch, Buffers, rows_of, token_ids_of
from streamwell.engine.native.cache import CacheShape, LayerCache
from streamwell.engine.native.embedding import Embedding
from streamwell.engine.native.experts import feed_forward, mixture
from streamwell.engine.native.linear import are_stored
from streamwell.engine.native.low_rank import NativeAdapter, addresses_of, most_between
from streamwell.engine.native.packing import Packer
from streamwell.engine.native.structures import (
    Activation,
    CacheStruct,
    Epilogue,
    EpilogueStruct,
    HeadsStruct,
    LayerStruct,
    NormStruct,
    StackStruct,
)
from streamwell.engine.rotary import waves
from streamwell.engine.saved_weights import SavedWeights
from streamwell.engine.sequence import Chunk

_LANES = 16
_ACTIVATIONS = {
    "silu": Activation.SILU,
    "gelu": Activation.GELU,
    "gelu_tanh": Activation.GELU_TANH,
    "clamped_swiglu": Activation.CLAMPED_SWIGLU,
}
#: Variations of the block that the helper has. What is declared anew keeps a model away by itself.
_VARIATIONS = frozenset(
    {
        "norm",
        "norm_placement",
        "qk_norm",
        "is_parallel",
        "shares_norm",
        "activation",
        "is_gated",
        "experts",
        "has_position_embeddings",
        "attention_scale",
        "attention_softcap",
        "has_sinks",
        "logits_softcap",
        "logits_divisor",
        "embedding_multiplier",
        "residual_multiplier",
    }
)


def supports(spec: DecoderSpec, weights: Weights) -> bool:
    """Whether the helper has this model's variations, and its fixed widths fit."""
    is_usual = spec.norm_placement == "before" and not spec.is_parallel
    has_block = (
        spec.variations <= _VARIATIONS
        and spec.activation in _ACTIVATIONS
        and (spec.residual_multiplier == 1 or spec.norm_placement == "before")
        and (spec.experts is None or is_usual)
        and (spec.logits_divisor == 1 or "lm_head.bias" not in weights)
    )
    if not has_block or spec.head_dim % _LANES or not are_stored(weights):
        return False
    gates = (weight for name, weight in weights.items() if name.endswith("gate_proj.weight"))
    return all(gate.shape[0] % _LANES == 0 for gate in gates)


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
        rounding: SavedWeights | None = None,
        adapters: AdapterTable[NativeAdapter] | None = None,
    ) -> None:
        """Packs the weights; `max_positions` bounds the positions that are ever asked for.

        `dtype` is that of the cache, and what linear layers multiply in that are not rounded:
        float32, or bfloat16 where the helper has it.
        With `rounding`, which is these weights, those that are rounded as they are saved stay so.
        `adapters` are those that sequences may have.
        """
        self.dtype, self.device = dtype, torch.device("cpu")
        self._library = library
        self._spec, self.adapters = spec, adapters
        self._cache_shape = CacheShape(library, dtype, spec.num_kv_heads, spec.head_dim)
        self._packer = Packer(
            library, weights, dtype, quantization, spec.residual_multiplier, rounding
        )
        self._turns = {rope: self._rotary_tables(rope, max_positions) for rope in set(spec.ropes)}
        self._layers = (LayerStruct * spec.num_layers)()
        for layer, struct in enumerate(self._layers):
            self._fill_layer(struct, layer)
        tied = spec.tie_word_embeddings
        self._head = self._packer.head("model.embed_tokens" if tied else "lm_head")
        self.vocab_size, self._hidden_size = self._head.out_features, self._head.in_features
        self._embedding = self._make_embedding(weights)
        self._struct = self._stack_struct()
        self._packer.forget_weights()
        self._buffers = self._make_buffers()

    @property
    def bytes_per_token(self) -> int:
        """What the cache takes per token, over all layers."""
        return self._spec.num_layers * self._cache_shape.bytes_per_token

    def allocate(self, num_blocks: int) -> None:
        """Make the cache; block 0 belongs to nobody."""
        self.cache: list[LayerCache] = [
            self._cache_shape.allocate(num_blocks) for _ in self._layers
        ]
        for struct, cache in zip(self._layers, self.cache, strict=True):
            struct.cache = CacheStruct(cache.ctypes.data)

    def forward(self, chunks: list[Chunk], rows: list[int]) -> torch.Tensor:
        """Logits `[len(rows), vocab_size]` of some rows of the chunks' tokens, end to end.

        The tensor is overwritten by the next call.
        """
        tokens = rows_of(chunks)
        inputs = self._buffers.of(tokens.count)["x"]
        self._embedding(token_ids_of(chunks), tokens.positions, inputs)
        adapters = None if self.adapters is None else addresses_of(self.adapters, chunks)
        batch, logits = Batch(tokens, rows, adapters=adapters), self._buffers.logits(len(rows))
        self._library.sw_decode(self._struct, batch.struct(self._buffers, logits))
        if (cap := self._spec.logits_softcap) is not None:
            logits.div_(cap).tanh_().mul_(cap)
        return logits

    def _make_embedding(self, weights: Weights) -> Embedding:
        spec = self._spec
        tied, positions = spec.tie_word_embeddings, spec.has_position_embeddings
        return Embedding(
            self._head if tied else self._packer.table("model.embed_tokens"),
            factor=spec.embedding_multiplier,
            positions=weights["model.embed_positions.weight"] if positions else None,
        )

    def _make_buffers(self) -> Buffers:
        spec = self._spec
        attended = spec.num_heads * spec.head_dim
        widths = {
            "x": self._hidden_size,
            "normed": self._hidden_size,
            "qkv": attended + 2 * spec.num_kv_heads * spec.head_dim,
            "attended": attended,
            "inner": max(layer.down.k for layer in self._layers),
        }
        if self.adapters is not None:
            widths["between"] = most_between(self.adapters)
        return Buffers(self._library, widths, self.vocab_size)

    def _fill_layer(self, struct: LayerStruct, layer: int) -> None:
        spec, packer, prefix = self._spec, self._packer, f"model.layers.{layer}."
        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        struct.qkv = packer.linear(*(f"{attention}{name}_proj" for name in "qkv")).struct
        struct.out = packer.linear(f"{attention}o_proj").struct
        if (experts := spec.experts_of(layer)) is not None:
            struct.mixture = mixture(packer, spec, experts, mlp)
        else:
            dense = feed_forward(packer, spec, mlp)
            struct.up, struct.down = dense.up, dense.down
        if spec.norm_placement in ("before", "around"):
            second = "input_layernorm" if spec.shares_norm else "post_attention_layernorm"
            struct.attention.input = self._norm(f"{prefix}input_layernorm")
            struct.feed_forward.input = self._norm(f"{prefix}{second}")
        if spec.norm_placement in ("after", "around"):
            struct.attention.output = self._norm(f"{prefix}post_self_attn_layernorm")
            struct.feed_forward.output = self._norm(f"{prefix}post_mlp_layernorm")
        if spec.qk_norm is not None:
            struct.query_norm = self._norm(f"{attention}q_norm")
            struct.key_norm = self._norm(f"{attention}k_norm")
        if spec.has_sinks:
            struct.sinks = packer.vector(f"{attention}sinks.weight")
        struct.cosines, struct.sines = self._turns[spec.ropes[layer]]
        struct.window = spec.windows[layer] or 0

    def _norm(self, name: str, factor: float = 1.0) -> NormStruct:
        spec = self._spec
        plus = float(spec.norm == "rms_plus_one")
        return self._packer.norm(name, has_bias=spec.norm == "layer", plus=plus, factor=factor)

    def _rotary_tables(
        self, rope: Rope | None, max_positions: int
    ) -> tuple[int | None, int | None]:
        """Cosines and sines, each `[max_positions, head_dim / 2]`; `None` where nothing turns."""
        if rope is None:
            return None, None
        cos, sin = waves(rope, self._spec.head_dim, max_positions)
        return self._packer.keep(cos), self._packer.keep(sin)

    def _stack_struct(self) -> StackStruct:
        spec = self._spec
        num_normed = spec.num_heads if spec.qk_norm == "projection" else 1
        form = Epilogue.GATE if spec.is_gated else Epilogue.STORE
        return StackStruct(
            layers=self._layers,
            num_layers=spec.num_layers,
            hidden_size=self._hidden_size,
            heads=HeadsStruct(spec.num_heads, spec.num_kv_heads, spec.head_dim),
            norm_width=num_normed * spec.head_dim,
            eps=spec.norm_eps,
            scale=spec.scale,
            softcap=spec.attention_softcap or 0.0,
            final_norm=self._norm("model.norm", 1 / spec.logits_divisor),
            head=self._head.struct,
            activation=EpilogueStruct(form, _ACTIVATIONS[spec.activation]),
            is_parallel=spec.is_parallel,
            has_pair_cache=self._cache_shape.has_pairs,
            has_fast_pairs=self._cache_shape.has_fast_pairs,
        )
