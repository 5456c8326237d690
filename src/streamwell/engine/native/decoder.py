"""The native decoder: the same blocks as `engine.block`, run by the compiled helper in one call.

Arithmetic is float32 whatever the weights are stored as, except that linear layers in bfloat16
round their inputs to it. Every row of a step is computed in the same order of operations whoever
its neighbours are: a token does not depend on the batch, on how a prompt was cut into chunks, or on
what the cache already held.
"""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt
import torch

from streamwell.engine.block import Weights, rotary_angles
from streamwell.engine.families import DecoderSpec
from streamwell.engine.native.library import (
    BatchStruct,
    CacheStruct,
    DecoderStruct,
    HeadsStruct,
    LayerStruct,
    SequencesStruct,
)
from streamwell.engine.native.linear import (
    PackedLinear,
    interleave,
    make_workspace,
    storage_kind,
)
from streamwell.engine.quantization import head_quantization
from streamwell.engine.sequence import Chunk

#: Positions per cache block, as the helper lays them out.
BLOCK_SIZE = 16
_LANES = 16


def supports(spec: DecoderSpec, weights: Weights) -> bool:
    """Whether the helper's fixed widths fit this model."""
    inner_sizes = (
        weights[f"model.layers.{layer}.mlp.gate_proj.weight"].shape[0]
        for layer in range(spec.num_layers)
    )
    return (
        spec.is_plain
        and spec.head_dim % _LANES == 0
        and all(size % _LANES == 0 for size in inner_sizes)
    )


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
        for layer, struct in enumerate(self._layers):
            self._fill_layer(struct, layer, weights)
        embedding = weights["model.embed_tokens.weight"]
        self.vocab_size, self._hidden_size = embedding.shape
        tied = spec.tie_word_embeddings
        self._head = self._packed(
            weights, ["model.embed_tokens" if tied else "lm_head"], head_quantization(quantization)
        )
        self._embedding = None if tied else embedding
        self._struct = self._decoder_struct(weights, max_positions)
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
        batch = _Batch(chunks, rows)
        logits = self._buffers.logits(len(rows))
        self._library.sw_forward(self._struct, batch.struct(buffers, logits))
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

    def _make_buffers(self) -> _Buffers:
        spec = self._spec
        attended = spec.num_heads * spec.head_dim
        widths = {
            "x": self._hidden_size,
            "normed": self._hidden_size,
            "qkv": attended + 2 * spec.num_kv_heads * spec.head_dim,
            "attended": attended,
            "gated": max(layer.down.k for layer in self._layers),
        }
        return _Buffers(self._library, widths, self.vocab_size)

    def _fill_layer(self, struct: LayerStruct, layer: int, weights: Weights) -> None:
        prefix = f"model.layers.{layer}."
        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        struct.qkv = self._packed(weights, [f"{attention}{name}_proj" for name in "qkv"]).struct
        struct.out = self._packed(weights, [f"{attention}o_proj"]).struct
        gate_up, bias = _gate_up(weights, mlp)
        struct.gate_up = self._pack(gate_up, bias, self._quantization).struct
        struct.down = self._packed(weights, [f"{mlp}down_proj"]).struct
        struct.norm_in = self._vector(weights, f"{prefix}input_layernorm.weight")
        struct.norm_mid = self._vector(weights, f"{prefix}post_attention_layernorm.weight")
        struct.query_norm = self._vector(weights, f"{attention}q_norm.weight")
        struct.key_norm = self._vector(weights, f"{attention}k_norm.weight")
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

    def _vector(self, weights: Weights, name: str) -> int | None:
        return self._keep(weights[name].float()) if name in weights else None

    def _keep(self, tensor: torch.Tensor) -> int:
        tensor = tensor.contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr()

    def _decoder_struct(self, weights: Weights, max_positions: int) -> DecoderStruct:
        spec = self._spec
        angles = rotary_angles(spec, max_positions)
        return DecoderStruct(
            self._layers,
            spec.num_layers,
            self._hidden_size,
            HeadsStruct(spec.num_heads, spec.num_kv_heads, spec.head_dim),
            spec.norm_eps,
            spec.scale,
            self._keep(weights["model.norm.weight"].float() / spec.logits_divisor),
            self._head.struct,
            self._keep(angles.cos()),
            self._keep(angles.sin()),
            self._has_pair_cache,
        )


def _gate_up(weights: Weights, mlp: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weights and bias of both projections, interleaved."""
    weight = interleave(weights[f"{mlp}gate_proj.weight"], weights[f"{mlp}up_proj.weight"])
    if f"{mlp}gate_proj.bias" not in weights:
        return weight, None
    gate, up = weights[f"{mlp}gate_proj.bias"], weights[f"{mlp}up_proj.bias"]
    return weight, interleave(gate[:, None], up[:, None])[:, 0].float()


class _Buffers:
    """Memory that every step uses again; it grows to the largest step ever seen."""

    def __init__(self, library: ctypes.CDLL, widths: dict[str, int], vocab_size: int) -> None:
        """`widths` are the floats per row of each buffer, by its name in the structure."""
        self._library = library
        self._widths = widths
        self._rows = 0
        self._tensors: dict[str, torch.Tensor] = {}
        self._logits = torch.empty(0, vocab_size)

    def of(self, rows: int) -> dict[str, torch.Tensor]:
        """Buffers of at least so many rows, by name, the workspace among them."""
        if rows > self._rows:
            self._rows = rows
            self._tensors = {name: torch.empty(rows, w) for name, w in self._widths.items()}
            widest = max(self._widths.values())
            self._tensors["workspace"] = make_workspace(self._library, rows, widest)
        return self._tensors

    def logits(self, count: int) -> torch.Tensor:
        """`[count, vocab_size]`."""
        if len(self._logits) < count:
            self._logits = torch.empty(count, self._logits.shape[1])
        return self._logits[:count]


class _Batch:
    """The indices of one step, kept while the helper reads them."""

    def __init__(self, chunks: list[Chunk], rows: list[int]) -> None:
        counts = [chunk.num_tokens for chunk in chunks]
        self._starts = np.array([chunk.start for chunk in chunks], np.int64)
        self._first_rows = np.zeros(len(chunks) + 1, np.int64)
        np.cumsum(counts, out=self._first_rows[1:])
        owners = np.repeat(np.arange(len(chunks)), counts)
        offsets = self._starts - self._first_rows[:-1]
        self._positions = np.arange(len(owners)) + offsets[owners]
        self._blocks = _block_table(chunks)
        blocks = self._blocks[owners, self._positions // BLOCK_SIZE].astype(np.int64)
        self._slots = blocks * BLOCK_SIZE + self._positions % BLOCK_SIZE
        self._outputs = np.array(rows, np.int64)

    def struct(self, buffers: dict[str, torch.Tensor], logits: torch.Tensor) -> BatchStruct:
        """The structure that points to all of it."""
        sequences = SequencesStruct(
            count=len(self._starts),
            first_rows=self._first_rows.ctypes.data,
            starts=self._starts.ctypes.data,
            blocks=self._blocks.ctypes.data,
            max_blocks=self._blocks.shape[1],
        )
        return BatchStruct(
            rows=len(self._positions),
            positions=self._positions.ctypes.data,
            slots=self._slots.ctypes.data,
            sequences=sequences,
            num_outputs=len(self._outputs),
            outputs=self._outputs.ctypes.data,
            logits=logits.data_ptr(),
            **{name: buffer.data_ptr() for name, buffer in buffers.items()},
        )


def _block_table(chunks: list[Chunk]) -> npt.NDArray[np.int32]:
    """`[len(chunks), most blocks]`; places that nobody reads hold block 0."""
    tables = [chunk.seq.block_ids[: -(-chunk.end // BLOCK_SIZE)] for chunk in chunks]
    table = np.zeros((len(tables), max(map(len, tables))), np.int32)
    for row, blocks in zip(table, tables, strict=True):
        row[: len(blocks)] = blocks
    return table
