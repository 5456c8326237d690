"""Runs a step on the device: ids in, one forward pass, sampled tokens of each finished chunk."""

from __future__ import annotations

from itertools import islice
from typing import Protocol, runtime_checkable

import torch

from streamwell.engine.batch_layout import order_chunks
from streamwell.engine.sampler import Drawn, Sampler
from streamwell.engine.sequence import Chunk, Sampled, Sequence, Step
from streamwell.engine.transfer import to_device


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


@runtime_checkable
class RunsAhead(Protocol):
    """What a model on a GPU has on top."""

    @property
    def runs_ahead(self) -> bool:
        """Whether steps of one token for each sequence are only launched, and computed later."""
        ...

    def forward_next(self, chunks: list[Chunk], token_ids: torch.Tensor) -> torch.Tensor:
        """As `forward`, with one token for each chunk, `[len(chunks)]` int64 on the device.

        Returns:
            Logits `[len(chunks), vocab_size]`, good until the next call.
        """
        ...


class Launched:
    """A step that is computed, or will be when the device gets to it."""

    def __init__(self, chunks: list[Chunk], drawn: Drawn | None) -> None:
        """`chunks` are in the order of the batch; nothing is drawn if none ends in a token."""
        self._drawn = drawn
        #: Who gets tokens, in order, and how many.
        self._takers = [(c.seq.request_id, c.num_sampled) for c in chunks if c.is_sampled]

    def wait(self) -> dict[str, tuple[Sampled, ...]]:
        """What was sampled, by request id, for chunks that end in a token.

        A chunk has `num_sampled` of them, in the order of its positions.
        """
        sampled = iter(() if self._drawn is None else self._drawn.sampled())
        return {request_id: tuple(islice(sampled, count)) for request_id, count in self._takers}

    def tokens_of(self, chunks: list[Chunk]) -> torch.Tensor:
        """`[len(chunks)]` int64 on the device: one token that the step brings to each sequence.

        What could not be sampled is token 0: nothing comes of it.
        """
        assert self._drawn is not None
        row_of = {request_id: row for row, (request_id, _) in enumerate(self._takers)}
        rows = [row_of[chunk.seq.request_id] for chunk in chunks]
        token_ids = self._drawn.token_ids.clamp(min=0)
        if rows == list(range(len(token_ids))):
            return token_ids
        return token_ids[to_device(torch.tensor(rows), token_ids.device)]


class ModelRunner:
    """Everything of the engine that touches tensors each step."""

    def __init__(self, model: Model, sampler: Sampler) -> None:
        self.vocab_size = model.vocab_size
        self.model = model
        self._ahead = model if isinstance(model, RunsAhead) else None
        self._sampler = sampler
        self._last: Launched | None = None

    @property
    def runs_ahead(self) -> bool:
        """Whether a step may be launched after one that is still being computed."""
        return self._ahead is not None and self._ahead.runs_ahead

    @torch.inference_mode()
    def launch(self, step: Step) -> Launched:
        """Compute a step, or have a GPU compute it."""
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
        drawn = self._sampler.draw(logits, seqs, guesses) if seqs else None
        self._last = Launched(chunks, drawn)
        return self._last

    @torch.inference_mode()
    def launch_next(self, step: Step) -> Launched:
        """Have a GPU compute the tokens that the last step brings: one for each sequence."""
        assert self._ahead is not None
        assert self._last is not None
        chunks = list(step.chunks)
        logits = self._ahead.forward_next(chunks, self._last.tokens_of(chunks))
        drawn = self._sampler.draw(logits, [chunk.seq for chunk in chunks], num_unknown=1)
        self._last = Launched(chunks, drawn)
        return self._last
