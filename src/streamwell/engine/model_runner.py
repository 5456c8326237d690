"""Runs a step on the device: ids in, one forward pass, one sampled token per finished chunk."""

from __future__ import annotations

from typing import Protocol

import torch

from streamwell.engine.attention import (
    Attention,
    LayerShape,
    PagedAttention,
    PagedCache,
    build_layout,
    order_chunks,
)
from streamwell.engine.sampler import Sampler
from streamwell.engine.sequence import Sampled, Step


class Decoder(Protocol):
    """A model: `block.LeanDecoder`, or `transformers_model.TransformersDecoder`."""

    vocab_size: int
    dtype: torch.dtype
    device: torch.device
    #: What each layer caches per token.
    shapes: list[LayerShape]

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        rows: torch.Tensor,
        attention: Attention,
    ) -> torch.Tensor:
        """Logits `[len(rows), vocab_size]` of some rows of `[num_tokens]` ids."""
        ...


class ModelRunner:
    """Everything of the engine that touches tensors each step."""

    def __init__(self, decoder: Decoder, cache: PagedCache, sampler: Sampler) -> None:
        self.vocab_size = decoder.vocab_size
        self._decoder = decoder
        self._cache = cache
        self._sampler = sampler

    @torch.inference_mode()
    def run(self, step: Step) -> dict[str, Sampled]:
        """Compute a step; returns what was sampled, by request id, for chunks that end in one."""
        device = self._decoder.device
        chunks = order_chunks(step)
        layout = build_layout(chunks, self._cache.block_size, device)
        token_ids = [i for c in chunks for i in c.seq.token_ids[c.start : c.end]]
        positions = [p for c in chunks for p in range(c.start, c.end)]
        seqs, last_rows, end = [], [], 0
        for chunk in chunks:
            end += chunk.num_tokens
            if chunk.is_sampled:
                seqs.append(chunk.seq)
                last_rows.append(end - 1)
        logits = self._decoder.forward(
            torch.tensor(token_ids, device=device),
            torch.tensor(positions, device=device),
            torch.tensor(last_rows, dtype=torch.int64, device=device),
            PagedAttention(self._cache, layout),
        )
        tokens = self._sampler(logits, seqs) if seqs else []
        return {seq.request_id: token for seq, token in zip(seqs, tokens, strict=True)}
