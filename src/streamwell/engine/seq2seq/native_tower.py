"""The encoder or the decoder of an encoder-decoder, packed for the helper."""

from __future__ import annotations

import torch
from torch.nn import functional

from streamwell.engine.native.cache import CacheShape, LayerCache
from streamwell.engine.native.embedding import Embedding
from streamwell.engine.native.linear import PackedLinear
from streamwell.engine.native.packing import Packer
from streamwell.engine.native.structures import (
    Activation,
    BiasStruct,
    CacheStruct,
    Epilogue,
    EpilogueStruct,
    HeadsStruct,
    LayerStruct,
    NormsStruct,
    NormStruct,
    StackStruct,
)
from streamwell.engine.seq2seq.attention import DistanceBias
from streamwell.engine.seq2seq.embeddings import Weights, embedding_weight, position_weight
from streamwell.engine.seq2seq.families import Seq2SeqSpec

ACTIVATIONS = {
    "relu": Activation.RELU,
    "gelu": Activation.GELU,
    "gelu_new": Activation.GELU_TANH,
    "silu": Activation.SILU,
    "swish": Activation.SILU,
}
#: Floats after a head's biases: the helper reads tiles of keys to their ends.
_BIAS_PADDING = 128


class NativeTower:
    """Its structure, its embeddings, and what its blocks need of memory."""

    def __init__(
        self,
        spec: Seq2SeqSpec,
        name: str,
        packer: Packer,
        weights: Weights,
        head: tuple[torch.Tensor, PackedLinear],
        max_len: int,
    ) -> None:
        """`head` is `[vocab_size, hidden_size]` as it was and as it is packed."""
        self._spec, self._name, self._packer = spec, name, packer
        self._stack = spec.encoder if name == "encoder" else spec.decoder
        saved, packed = head
        table = embedding_weight(weights, name)
        self._hidden_size = table.shape[1]
        self.cache_shape = CacheShape(
            packer.library, packer.dtype, self._stack.num_heads, self._stack.head_dim
        )
        #: Writes the input of the first block.
        self.embed = Embedding(
            packed if table is saved else table,
            factor=spec.embedding_scale,
            positions=position_weight(spec, weights, name, max_len),
        )
        bias = self._distance_bias(weights, max_len)
        self.layers = (LayerStruct * self._stack.num_layers)()
        for layer, struct in enumerate(self.layers):
            struct.bias = bias
            self._fill_layer(struct, f"{name}.{layer}")
        self.struct = self._stack_struct(packed)

    @property
    def widths(self) -> dict[str, int]:
        """Floats per row of each buffer, by its name in `BatchStruct`."""
        attended = self._stack.num_heads * self._stack.head_dim
        return {
            "x": self._hidden_size,
            "normed": self._hidden_size,
            "qkv": 3 * attended,
            "attended": attended,
            "inner": max((layer.down.k for layer in self.layers), default=0),
        }

    def use(self, caches: list[LayerCache]) -> None:
        """Read and write these from now on; the caller keeps them."""
        for struct, cache in zip(self.layers, caches, strict=True):
            struct.cache = CacheStruct(cache.ctypes.data)

    def _fill_layer(self, struct: LayerStruct, prefix: str) -> None:
        linear = self._packer.linear
        struct.qkv = linear(*(f"{prefix}.self.{part}" for part in "qkv")).struct
        struct.out = linear(f"{prefix}.self.o").struct
        struct.attention = self._norms(f"{prefix}.self_norm")
        gate, up = f"{prefix}.gate", f"{prefix}.up"
        first = self._packer.gated(gate, up) if self._spec.is_gated else linear(up)
        struct.up, struct.down = first.struct, linear(f"{prefix}.down").struct
        struct.feed_forward = self._norms(f"{prefix}.inner_norm")
        if self._name == "decoder":
            struct.cross_query = linear(f"{prefix}.cross.q").struct
            struct.cross_key_value = linear(f"{prefix}.cross.k", f"{prefix}.cross.v").struct
            struct.cross_out = linear(f"{prefix}.cross.o").struct
            struct.cross = self._norms(f"{prefix}.cross_norm")

    def _norms(self, name: str) -> NormsStruct:
        norm = self._norm(name)
        return NormsStruct(input=norm) if self._spec.is_norm_first else NormsStruct(sum=norm)

    def _norm(self, name: str, factor: float = 1.0) -> NormStruct:
        return self._packer.norm(name, has_bias=not self._spec.is_rms_norm, factor=factor)

    def _distance_bias(self, weights: Weights, max_len: int) -> BiasStruct:
        if self._spec.relative_bias is None:
            return BiasStruct()
        weight, is_causal = weights[f"{self._name}.0.bias"], self._name == "decoder"
        bias = DistanceBias(self._spec.relative_bias, weight.float(), max_len, is_causal=is_causal)
        table = functional.pad(bias.table, (0, _BIAS_PADDING))
        return BiasStruct(self._packer.keep(table), table.shape[1], bias.origin)

    def _stack_struct(self, head: PackedLinear) -> StackStruct:
        spec, stack, name = self._spec, self._stack, self._name
        form = Epilogue.GATE if spec.is_gated else Epilogue.STORE
        struct = StackStruct(
            layers=self.layers,
            num_layers=stack.num_layers,
            hidden_size=self._hidden_size,
            heads=HeadsStruct(stack.num_heads, stack.num_heads, stack.head_dim),
            norm_width=stack.head_dim,
            eps=spec.norm_eps,
            scale=stack.head_dim**-0.5 if spec.is_attention_scaled else 1.0,
            activation=EpilogueStruct(form, ACTIVATIONS[spec.activation]),
            has_pair_cache=self.cache_shape.has_pairs,
            has_fast_pairs=self.cache_shape.has_fast_pairs,
        )
        if spec.has_embedding_norm:
            struct.embedding_norm = self._norm(f"{name}.embedding_norm")
        if name == "decoder":
            struct.head = head.struct
        if spec.has_final_norm:
            factor = spec.head_scale if name == "decoder" else 1.0
            struct.final_norm = self._norm(f"{name}.norm", factor)
        return struct
