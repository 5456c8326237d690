"""A smaller model that guesses what the model will say: speculative decoding.

After Leviathan, Kalman and Matias 2023, "Fast Inference from Transformers via Speculative
Decoding", but for the rule by which a guess holds: here it has to be the token that the model
itself chooses. That keeps every answer to the letter. A draft that is sampled is drawn with the
random number that the model's own draw will use, so two models that agree about a distribution
mostly agree about the token.

The draft model has a cache of its own under the same block ids, so there is nothing to own or to
free. It may be behind the model, by the last guess of a step or while nothing is guessed; what it
lacks is the first thing that it computes. Its place is `Sequence.num_drafted_tokens`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch

from streamwell.engine.batch_layout import order_chunks
from streamwell.engine.model_runner import Model
from streamwell.engine.sampler import Sampler
from streamwell.engine.sequence import Chunk, Step

#: While nothing is guessed, the draft model may be so many tokens behind in a sequence, and so many
#: in all: computing them together costs little more than computing one, up to some number of rows.
MAX_TOKENS_BEHIND, MAX_ROWS_BEHIND = 16, 64


@dataclass(slots=True, eq=False)
class _Draft:
    """The guesses for one chunk, while they are made."""

    chunk: Chunk
    token_ids: list[int] = field(default_factory=list)
    is_ended: bool = False

    @property
    def is_wanted(self) -> bool:
        return not self.is_ended and len(self.token_ids) < self.chunk.num_drafts

    @property
    def end(self) -> int:
        """Tokens that the draft model has computed when it has guessed the last of them."""
        return self.chunk.end + max(0, len(self.token_ids) - 1)

    def next_part(self) -> Chunk:
        """What it has to compute for the next guess: first all that it lacks, then its last."""
        seq = self.chunk.seq
        if self.token_ids:
            return Chunk(seq, self.end, 1, (self.token_ids[-1],))
        return Chunk(seq, seq.num_drafted_tokens, self.chunk.end - seq.num_drafted_tokens)


class ModelDrafter:
    """A `drafter.Drafter` over a model that shares block ids with the one it guesses for."""

    def __init__(self, model: Model, sampler: Sampler, vocab_size: int) -> None:
        """`sampler` and `vocab_size` are those of the model that it guesses for."""
        self._model = model
        self._sampler = sampler
        self._vocab_size = vocab_size

    @torch.inference_mode()
    def fill(self, step: Step) -> Step:
        """Guess for all chunks that want it, in one forward pass per place.

        The first pass computes all that the draft model lacks of the step's sequences.
        """
        if _may_wait(step):
            return Step(tuple(c.guessed((), c.seq.num_drafted_tokens) for c in step.chunks))
        drafts = [_Draft(chunk) for chunk in step.chunks]
        self._guess(drafts)
        while wanted := [draft for draft in drafts if draft.is_wanted]:
            self._guess(wanted)
        return Step(tuple(d.chunk.guessed(tuple(d.token_ids), d.end) for d in drafts))

    def _guess(self, drafts: list[_Draft]) -> None:
        """One forward pass, and one more guess for each that wants it."""
        owners = {self._readable(draft.next_part()): draft for draft in drafts}
        chunks = order_chunks(Step(tuple(owners)))
        ends = accumulate(chunk.num_tokens for chunk in chunks)
        rows = {end - 1: owners[c] for c, end in zip(chunks, ends, strict=True)}
        rows = {row: draft for row, draft in rows.items() if draft.is_wanted}
        logits = self._model.forward(chunks, list(rows))
        if not rows:
            return
        seqs = [draft.chunk.seq for draft in rows.values()]
        guesses = [tuple(draft.token_ids) for draft in rows.values()]
        chosen = self._sampler(self._fitted(logits), seqs, guesses)
        for draft, sampled in zip(rows.values(), chosen, strict=True):
            draft.is_ended = sampled.error is not None
            if not draft.is_ended:
                draft.token_ids.append(sampled.token_id)

    def _readable(self, chunk: Chunk) -> Chunk:
        """Some id instead of those that the draft model lacks; they are padding of the other's."""
        size = self._model.vocab_size
        if size >= self._vocab_size or max(chunk.token_ids) < size:
            return chunk
        token_ids = [token_id % size for token_id in chunk.seq.token_ids]
        draft_ids = tuple(token_id % size for token_id in chunk.draft_ids)
        return replace(chunk, seq=replace(chunk.seq, token_ids=token_ids), draft_ids=draft_ids)

    def _fitted(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits `[rows, vocab_size]` over the other model's vocabulary."""
        missing = self._vocab_size - logits.shape[1]
        if missing <= 0:
            return logits[:, : self._vocab_size]
        return torch.nn.functional.pad(logits, (0, missing), value=float("-inf"))


def _may_wait(step: Step) -> bool:
    """Whether the draft model may leave a step's tokens for later."""
    behind = [chunk.end - chunk.seq.num_drafted_tokens for chunk in step.chunks]
    if any(chunk.num_drafts or not chunk.is_decode for chunk in step.chunks):
        return False
    return max(behind) <= MAX_TOKENS_BEHIND and sum(behind) <= MAX_ROWS_BEHIND
