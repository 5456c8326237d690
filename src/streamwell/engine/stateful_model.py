"""A decoder of Transformers' in which some layers keep a state of each sequence.

A state cannot be cut where the prompts of two sequences part, nor be taken back: such models have
no prefix cache, and nothing is guessed for them. A sequence that is preempted is computed anew, as
with any model. Tokens of different sequences cannot lie end to end, as attention has it; so of a
step, all sequences with one token are computed as a batch, and each other one by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

import torch

from streamwell.core.errors import LoadError
from streamwell.core.types import SamplingParams
from streamwell.engine.attention import Attention, PagedCache
from streamwell.engine.batch_layout import build_layout
from streamwell.engine.sequence import Chunk, Sequence
from streamwell.engine.state_cache import StatefulAttention, States
from streamwell.engine.torch_model import TorchModel
from streamwell.engine.transformers_model import TransformersDecoder

#: Of the largest logit: what two ways to compute the same may differ by in float32.
_MARGIN = 1e-3


class StatefulModel:
    """A `model_runner.Model`."""

    def __init__(self, decoder: TransformersDecoder, block_size: int) -> None:
        self._decoder = decoder
        self._model = TorchModel(decoder, block_size, lay_out=self._lay_out)
        self.vocab_size = decoder.vocab_size
        self.dtype, self.device = decoder.dtype, decoder.device
        #: How many tokens the state of each live sequence has seen.
        self._ends: dict[Sequence, int] = {}
        #: The states of those that are not in the last batch.
        self._own: dict[Sequence, States] = {}
        #: The last batch, which is mostly the next one, too.
        self._batch: tuple[list[Sequence], States] | None = None
        #: Those of the sequences that are being computed.
        self._current: tuple[States, bool] | None = None

    @property
    def bytes_per_token(self) -> int:
        return self._model.bytes_per_token

    @property
    def bytes_per_sequence(self) -> int:
        """What the states of a sequence take, as far as some live sequence tells."""
        return max((states.num_bytes for states in self._own.values()), default=0)

    def allocate(self, num_blocks: int) -> None:
        self._model.allocate(num_blocks)

    def forward(self, chunks: list[Chunk], rows: list[int]) -> torch.Tensor:
        """See `model_runner.Model`."""
        self._forget()
        ends = list(accumulate(chunk.num_tokens for chunk in chunks))
        numbers = [bisect_right(ends, row) for row in rows]
        batch = [i for i, chunk in enumerate(chunks) if chunk.num_tokens == 1 and chunk.start]
        alone = [[i] for i in range(len(chunks)) if i not in batch]
        parts, order = [], []
        for group in filter(None, [batch, *alone]):
            places = [place for place, number in enumerate(numbers) if number in group]
            first = 0 if group is batch else ends[group[0]] - chunks[group[0]].num_tokens
            own_rows = [
                group.index(numbers[place]) if group is batch else rows[place] - first
                for place in places
            ]
            is_batch = group is batch
            parts.append(self._compute([chunks[i] for i in group], own_rows, is_batch=is_batch))
            order += places
        logits = torch.cat(parts)
        if order == list(range(len(order))):
            return logits
        return logits[torch.tensor(order, device=self.device).argsort()]

    def _compute(self, chunks: list[Chunk], rows: list[int], *, is_batch: bool) -> torch.Tensor:
        for chunk in chunks:
            if self._ends.get(chunk.seq, 0) != chunk.start:
                raise RuntimeError("the state of a sequence is not that of its computed tokens")
        seqs = [chunk.seq for chunk in chunks]
        states = self._together(seqs) if is_batch else self._alone(seqs[0])
        self._current = states, is_batch
        logits = self._model.forward(chunks, rows)
        self._ends |= {chunk.seq: chunk.end for chunk in chunks}
        return logits

    def _lay_out(self, cache: PagedCache, chunks: list[Chunk]) -> Attention:
        assert self._current is not None
        states, is_batch = self._current
        layout = build_layout(chunks, cache.block_size, cache.device)
        return StatefulAttention(cache, layout, states, is_batch=is_batch)

    def _together(self, seqs: list[Sequence]) -> States:
        """The states of sequences that have begun, as one."""
        if self._batch is None or self._batch[0] != seqs:
            self._part()
            self._batch = seqs, States.joined([self._own.pop(seq) for seq in seqs])
        return self._batch[1]

    def _alone(self, seq: Sequence) -> States:
        if self._batch is not None and seq in self._batch[0]:
            self._part()
        if seq not in self._own:
            self._own[seq] = self._decoder.new_states()
        return self._own[seq]

    def _part(self) -> None:
        """Give each sequence of the last batch its own again."""
        if self._batch is not None:
            seqs, states = self._batch
            own = zip(seqs, states.split(len(seqs)), strict=True)
            self._own |= {seq: state for seq, state in own if seq in self._ends}
            self._batch = None

    def _forget(self) -> None:
        """Drop what is over, or was preempted and begins anew."""
        gone = {seq for seq in self._ends if seq.is_over or not seq.num_computed_tokens}
        for seq in gone:
            del self._ends[seq]
            self._own.pop(seq, None)
        if self._batch is not None and not gone.isdisjoint(self._batch[0]):
            self._part()


@torch.inference_mode()
def try_out_states(
    model: StatefulModel, decoder: TransformersDecoder, *, compares: bool = True
) -> int:
    """Whether tokens in parts, and in a batch, are what they are all at once.

    Without `compares` only whether they are computed: what is rounded comes to other numbers.

    Returns:
        Bytes that the states of a sequence take.

    Raises:
        LoadError: they are not: Transformers' code keeps the state elsewhere, or takes it up with
            single tokens only.
    """
    last = model.vocab_size - 1
    texts = [[at * last // 7 for at in (3, 1, 4, 1, 5, 2, 6)], [at * last // 7 for at in (2, 6, 5)]]
    expected = [decoder.whole_text(torch.tensor(text, device=model.device)) for text in texts]
    one, other = (Sequence("", text, SamplingParams(max_tokens=1)) for text in texts)
    one.block_ids, other.block_ids = list(range(1, 8)), list(range(8, 11))
    model.allocate(10)
    for chunks in (
        [Chunk(one, 0, 3)],
        [Chunk(one, 3, 1), Chunk(other, 0, 2)],
        [Chunk(one, 4, 1), Chunk(other, 2, 1)],
        [Chunk(one, 5, 2)],
    ):
        rows = torch.tensor([chunk.num_tokens for chunk in chunks]).cumsum(0) - 1
        logits = model.forward(chunks, rows.tolist())
        for chunk, got in zip(chunks, logits, strict=True):
            wanted = expected[chunk.seq is other][chunk.end - 1]
            chunk.seq.num_computed_tokens = chunk.end
            margin = max(_MARGIN, 16 * torch.finfo(model.dtype).eps) * float(wanted.abs().amax())
            if compares and not float((got - wanted).abs().amax()) <= margin:
                raise LoadError(
                    "this architecture cannot be served yet: of a text in parts it makes something "
                    "else than of all of it at once"
                )
    one.is_over = other.is_over = True  # and are forgotten
    return model.bytes_per_sequence
