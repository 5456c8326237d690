"""An encoder-decoder on CPUs, run by the compiled helper: a call per step, and one for its inputs.

It is `model` and `block` in C++; `engine.native.decoder` says how the helper computes.
"""

from __future__ import annotations

import ctypes
from itertools import accumulate

import torch

from streamwell.core.errors import LoadError
from streamwell.engine.native import BLOCK_SIZE
from streamwell.engine.native.batch import (
    Batch,
    Buffers,
    Rows,
    integers,
    rows_of,
    token_ids_of,
)
from streamwell.engine.native.cache import LayerCache
from streamwell.engine.native.linear import are_stored
from streamwell.engine.native.packing import Packer
from streamwell.engine.quantization import head_quantization
from streamwell.engine.seq2seq.embeddings import Weights, head_bias, head_weight
from streamwell.engine.seq2seq.families import Seq2SeqSpec
from streamwell.engine.seq2seq.native_tower import ACTIVATIONS, NativeTower
from streamwell.engine.seq2seq.shapes import check_shapes
from streamwell.engine.sequence import Chunk

_LANES = 16


def supports(spec: Seq2SeqSpec, weights: Weights) -> bool:
    """Whether the helper has this model's activation, and its fixed widths fit."""
    sizes = [spec.encoder.head_dim, spec.decoder.head_dim]
    if spec.is_gated:
        sizes += [len(w) for name, w in weights.items() if name.endswith(".gate.weight")]
    # without a norm before the head there is nothing to fold its factor into
    can_scale = spec.has_final_norm or spec.head_scale == 1.0
    return (
        spec.activation in ACTIVATIONS
        and can_scale
        and all(size % _LANES == 0 for size in sizes)
        and are_stored(weights)
    )


class NativeSeq2Seq:
    """A `model_runner.Model` of an encoder and a decoder.

    Its cache holds keys and values of both of a decoder block's attentions; block 0 belongs to
    nobody. An encoder's own are needed only while it reads: its blocks share a cache.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        spec: Seq2SeqSpec,
        weights: Weights,
        *,
        max_model_len: int,
        dtype: torch.dtype,
        quantization: str,
    ) -> None:
        """`weights` bear our names; input and output have at most `max_model_len` tokens each.

        `dtype` is that of the cache, and what linear layers multiply in that are not rounded:
        float32, or bfloat16 where the helper has it.
        """
        check_shapes(spec, weights)
        self.start_ids = spec.start_ids
        self.dtype, self.device = dtype, torch.device("cpu")
        self._library = library
        head = head_weight(weights)
        self.vocab_size = len(head)
        if max(spec.start_ids) >= self.vocab_size:
            raise LoadError(f"the decoder starts with {spec.start_ids}, beyond its vocabulary")
        packer = Packer(library, weights, dtype, quantization)
        packed = packer.pack(head, head_bias(spec, weights), head_quantization(quantization))
        self._encoder, self._decoder = (
            NativeTower(spec, name, packer, weights, (head, packed), max_model_len)
            for name in ("encoder", "decoder")
        )
        packer.forget_weights()
        widths = {
            name: max(width, self._decoder.widths[name])
            for name, width in self._encoder.widths.items()
        }
        self._buffers = Buffers(library, widths, self.vocab_size)
        self._num_encoder_blocks = 0

    @property
    def bytes_per_token(self) -> int:
        """What the cache takes per token, over all layers."""
        return len(self._decoder.layers) * self._decoder.cache_shape.bytes_per_token

    def allocate(self, num_blocks: int) -> None:
        """Make the cache; block 0 belongs to nobody."""
        shape = self._decoder.cache_shape
        self.cache: list[LayerCache] = [shape.allocate(num_blocks) for _ in self._decoder.layers]
        self._decoder.use(self.cache)

    def forward(self, chunks: list[Chunk], rows: list[int]) -> torch.Tensor:
        """Logits `[len(rows), vocab_size]` of some rows of the chunks' tokens, end to end.

        The tensor is overwritten by the next call.
        """
        if new := [chunk for chunk in chunks if chunk.encoder_ids]:
            self._encode(new)
        tokens = rows_of(chunks)
        inputs = self._buffers.of(tokens.count)["x"]
        self._decoder.embed(token_ids_of(chunks), tokens.positions, inputs)
        batch = Batch(tokens, rows, cross=_inputs_of(chunks))
        logits = self._buffers.logits(len(rows))
        self._library.sw_decode(self._decoder.struct, batch.struct(self._buffers, logits))
        return logits

    def _encode(self, chunks: list[Chunk]) -> None:
        """Read inputs, and write what the decoder's blocks see of them."""
        token_ids = integers(i for c in chunks for i in c.encoder_ids)
        lengths = [len(c.encoder_ids) for c in chunks]
        ends = list(accumulate(map(_num_blocks, lengths)))
        self._make_room(ends[-1])
        starts = [0] * len(chunks)
        tables = [range(end - _num_blocks(n), end) for end, n in zip(ends, lengths, strict=True)]
        tokens = Rows(starts, lengths, tables, lengths)
        remembered = Rows(starts, lengths, [c.seq.cross_block_ids for c in chunks])
        inputs = self._buffers.of(tokens.count)["x"]
        self._encoder.embed(token_ids, tokens.positions, inputs)
        batch = Batch(tokens, [], cross_slots=remembered.slots())
        step = batch.struct(self._buffers)
        self._library.sw_encode(self._encoder.struct, self._decoder.struct, step)

    def _make_room(self, num_blocks: int) -> None:
        """For the encoder's own keys and values."""
        if num_blocks > self._num_encoder_blocks:
            self._num_encoder_blocks = num_blocks
            self._encoder_cache = self._encoder.cache_shape.allocate(num_blocks)
            self._encoder.use([self._encoder_cache] * len(self._encoder.layers))


def _inputs_of(chunks: list[Chunk]) -> Rows:
    """The chunks' tokens, all of which see their sequence's whole input."""
    lengths = [len(chunk.seq.encoder_ids) for chunk in chunks]
    tables = [chunk.seq.cross_block_ids for chunk in chunks]
    return Rows([c.start for c in chunks], [c.num_tokens for c in chunks], tables, lengths)


def _num_blocks(length: int) -> int:
    return -(-length // BLOCK_SIZE)
