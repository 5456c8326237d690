"""Runs a step on the device: ids in, one forward pass, one sampled token per finished chunk."""

from __future__ import annotations

import torch

from streamwell.engine.attention import PagedAttention, PagedCache, build_layout, order_chunks
from streamwell.engine.sampler import Sampler
from streamwell.engine.sequence import Sampled, Step


class ModelRunner:
    """Everything of the engine that touches tensors each step."""

    def __init__(self, model: torch.nn.Module, cache: PagedCache, sampler: Sampler) -> None:
        self.vocab_size: int = model.get_input_embeddings().num_embeddings  # type: ignore[operator]
        self._model = model
        self._cache = cache
        self._sampler = sampler
        self._device = next(model.parameters()).device

    @torch.inference_mode()
    def run(self, step: Step) -> dict[str, Sampled]:
        """Compute a step; returns what was sampled, by request id, for chunks that end in one."""
        chunks = order_chunks(step)
        layout = build_layout(chunks, self._cache.block_size, self._device)
        token_ids = [i for c in chunks for i in c.seq.token_ids[c.start : c.end]]
        positions = [p for c in chunks for p in range(c.start, c.end)]
        sampled = [chunk for chunk in chunks if chunk.is_sampled]
        last_rows, end = [], 0
        for chunk in chunks:
            end += chunk.num_tokens
            if chunk.is_sampled:
                last_rows.append(end - 1)
        output = self._model(
            input_ids=torch.tensor([token_ids], device=self._device),
            position_ids=torch.tensor([positions], device=self._device),
            use_cache=False,
            logits_to_keep=torch.tensor(last_rows, dtype=torch.int64, device=self._device),
            attention=PagedAttention(self._cache, layout),
        )
        seqs = [chunk.seq for chunk in sampled]
        tokens = self._sampler(output.logits[0], seqs) if seqs else []
        return {seq.request_id: token for seq, token in zip(seqs, tokens, strict=True)}
