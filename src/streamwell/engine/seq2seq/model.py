"""An encoder-decoder with its paged cache, in PyTorch."""

from __future__ import annotations

import torch
from torch.nn import functional

from streamwell.core.errors import LoadError
from streamwell.engine.attention import zeros
from streamwell.engine.linear import make_linear
from streamwell.engine.seq2seq.attention import DistanceBias, EncoderLayout, Layouts
from streamwell.engine.seq2seq.block import Block, make_norm
from streamwell.engine.seq2seq.embeddings import (
    Weights,
    embedding_weight,
    head_bias,
    head_weight,
    position_weight,
)
from streamwell.engine.seq2seq.families import Seq2SeqSpec
from streamwell.engine.sequence import Chunk


class Seq2SeqModel:
    """A `model_runner.Model` of an encoder and a decoder.

    Its cache holds keys and values of both of a decoder block's attentions, `[num_slots, 2,
    num_heads, head_dim]` per layer. Block `b` is slots `[b * block_size, (b + 1) * block_size)`;
    block 0 belongs to nobody and stays zero.
    """

    def __init__(
        self, spec: Seq2SeqSpec, weights: Weights, block_size: int, max_model_len: int
    ) -> None:
        """`weights` bear our names; input and output have at most `max_model_len` tokens each."""
        self.start_ids = spec.start_ids
        self._spec = spec
        self._block_size = block_size
        embedding = embedding_weight(weights, "decoder")
        self.vocab_size = embedding.shape[0]
        self.dtype, self.device = embedding.dtype, embedding.device
        if max(spec.start_ids) >= self.vocab_size:
            raise LoadError(f"the decoder starts with {spec.start_ids}, beyond its vocabulary")
        self._encoder = _Tower(spec, weights, "encoder", max_model_len)
        self._decoder = _Tower(spec, weights, "decoder", max_model_len)
        self._head = make_linear(head_weight(weights), head_bias(spec, weights))
        self._layouts = Layouts(
            block_size, self.dtype, self.device, self._encoder.bias, self._decoder.bias
        )

    @property
    def bytes_per_token(self) -> int:
        stack = self._spec.decoder
        per_layer = 2 * stack.num_heads * stack.head_dim * self.dtype.itemsize
        return stack.num_layers * per_layer

    def allocate(self, num_blocks: int) -> None:
        stack = self._spec.decoder
        num_slots = (num_blocks + 1) * self._block_size
        shape = (num_slots, 2, stack.num_heads, stack.head_dim)
        self._caches = [zeros(shape, self.dtype, self.device) for _ in range(stack.num_layers)]

    def forward(self, chunks: list[Chunk], rows: list[int]) -> torch.Tensor:
        inputs = self._layouts.encoder(chunks)
        if inputs is not None:
            self._encode(inputs)
        layout = self._layouts.decoder(chunks)
        x = self._decoder.embed(layout.token_ids, layout.positions)
        for block, cache in zip(self._decoder.blocks, self._caches, strict=True):
            x = block.decode(x, cache, layout.new_slots, layout.self_reads, layout.cross_reads)
        x = self._decoder.finish(x if len(rows) == len(x) else x[rows])
        return self._head(x * self._spec.head_scale if self._spec.head_scale != 1.0 else x)

    def _encode(self, layout: EncoderLayout) -> None:
        """Read inputs, and write what the decoder sees of them."""
        x = self._encoder.embed(layout.token_ids, layout.positions)
        for block in self._encoder.blocks:
            x = block.encode(x, layout.reads)
        x = self._encoder.finish(x)
        for block, cache in zip(self._decoder.blocks, self._caches, strict=True):
            block.remember(cache, layout.new_slots, x)


class _Tower:
    """The encoder, or the decoder: embedding, blocks, norm."""

    def __init__(self, spec: Seq2SeqSpec, weights: Weights, name: str, max_len: int) -> None:
        stack = spec.encoder if name == "encoder" else spec.decoder
        self._scale = spec.embedding_scale
        self._embedding = embedding_weight(weights, name)
        self._positions = position_weight(spec, weights, name, max_len)
        self._embedding_norm = (
            make_norm(spec, weights, f"{name}.embedding_norm") if spec.has_embedding_norm else None
        )
        self.blocks = [
            Block(spec, stack, weights, f"{name}.{layer}") for layer in range(stack.num_layers)
        ]
        self._norm = make_norm(spec, weights, f"{name}.norm") if spec.has_final_norm else None
        self.bias = None
        if spec.relative_bias is not None:
            weight = weights[f"{name}.0.bias"]
            is_causal = name == "decoder"
            self.bias = DistanceBias(spec.relative_bias, weight, max_len, is_causal=is_causal)

    def embed(self, token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """`[num_tokens, hidden_size]`, the input of the first block."""
        x = functional.embedding(token_ids, self._embedding)
        if self._scale != 1.0:
            x = x * self._scale
        if self._positions is not None:
            x = x + functional.embedding(positions, self._positions)
        return x if self._embedding_norm is None else self._embedding_norm(x)

    def finish(self, x: torch.Tensor) -> torch.Tensor:
        """What comes after the last block."""
        return x if self._norm is None else self._norm(x)
