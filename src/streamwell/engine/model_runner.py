"""Runs a step on the device: ids in, one forward pass, sampled tokens of each finished chunk."""

from __future__ import annotations

from itertools import islice
from typing import Protocol

import torch

from streamwell.engine.batch_layout import order_chunks
from streamwell.engine.sampler import Sampler
from streamwell.engine.sequence import Chunk, Sampled, Sequence, Step


class Model(Protocol):
    """A model and its cache: natively or in PyTorch, a decoder or an encoder-decoder."""

    vocab_size: int
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes_per_token(self) -> int:
        """What the cache takes per token, over all layers."""
        ...

    def allocate(self, num_blocks: int) -> None:
        """Make the cache; `forward` needs it. Block 0 belongs to nobody."""
        ...

    def forward(self, chunks: list[Chunk], rows: list[int]) -> torch.Tensor:
        """Compute chunks that `order_chunks` has ordered, and write their keys and values.

        Returns:
            Logits `[len(rows), vocab_size]` of some rows of the chunks' tokens laid end to end,
            in order, those of a chunk next to each other; good until the next call.
        """
        ...


class ModelRunner:
    """Everything of the engine that touches tensors each step."""

    def __init__(self, model: Model, sampler: Sampler) -> None:
        self.vocab_size = model.vocab_size
        self.model = model
        self._sampler = sampler

    @torch.inference_mode()
    def run(self, step: Step) -> dict[str, tuple[Sampled, ...]]:
        """Compute a step; returns what was sampled, by request id, for chunks that end in one.

        A chunk has `num_sampled` of them, in the order of its positions.
        """
        chunks = order_chunks(step)
        seqs: list[Sequence] = []
        rows: list[int] = []
        guesses: list[tuple[int, ...]] = []
        end = 0
        for chunk in chunks:
            end += chunk.num_tokens
            seqs += [chunk.seq] * chunk.num_sampled
            rows += range(end - chunk.num_sampled, end)
            guesses += [chunk.draft_ids[:count] for count in range(chunk.num_sampled)]
        logits = self.model.forward(chunks, rows)
        if not seqs and self.model.device.type == "cuda":
            # else the time that this one takes would be that of a later step, too
            torch.cuda.synchronize(self.model.device)
        sampled = iter(self._sampler(logits, seqs, guesses) if seqs else ())
        return {
            chunk.seq.request_id: tuple(islice(sampled, chunk.num_sampled))
            for chunk in chunks
            if chunk.is_sampled
        }
