"""What a draft model computes, and when; the model here is one that counts."""

from __future__ import annotations

import pytest
import torch
from scheduler_bench import EOS, with_prompt

from streamwell.engine.draft_model import MAX_ROWS_BEHIND, MAX_TOKENS_BEHIND, ModelDrafter
from streamwell.engine.sampler import Sampler
from streamwell.engine.sequence import Chunk, Sequence, Step

VOCAB_SIZE = 40


class Counting:
    """After each token comes the next number; after `broken` nothing that is finite."""

    dtype, device, bytes_per_token = torch.float32, torch.device("cpu"), 1

    def __init__(self, vocab_size: int = VOCAB_SIZE, broken: int = -1) -> None:
        self.vocab_size = vocab_size
        self.broken = broken
        #: Per call: request, first position and tokens of each chunk.
        self.calls: list[list[tuple[str, int, list[int]]]] = []

    def allocate(self, num_blocks: int) -> None:
        pass

    def forward(self, chunks: list[Chunk], rows: list[int]) -> torch.Tensor:
        self.calls.append([(c.seq.request_id, c.start, c.token_ids) for c in chunks])
        token_ids = [token_id for chunk in chunks for token_id in chunk.token_ids]
        logits = torch.zeros(len(rows), self.vocab_size)
        for at, row in enumerate(rows):
            logits[at, (token_ids[row] + 1) % self.vocab_size] = 9.0
            logits[at] += float("nan") if token_ids[row] == self.broken else 0.0
        return logits


def decoding(name: str, num_tokens: int, num_drafted: int) -> Sequence:
    """All but its last token are computed, and by the draft model so many."""
    seq = with_prompt(name, range(num_tokens), temperature=0.0)
    seq.num_computed_tokens, seq.num_drafted_tokens = num_tokens - 1, num_drafted
    return seq


def last_token(seq: Sequence, num_drafts: int = 0) -> Chunk:
    return Chunk(seq, seq.num_tokens - 1, 1, num_drafts=num_drafts)


def fill(model: Counting, *chunks: Chunk) -> list[tuple[tuple[int, ...], int | None]]:
    """Guesses, and how far the draft model came, per chunk."""
    step = ModelDrafter(model, Sampler(frozenset({EOS})), VOCAB_SIZE).fill(Step(chunks))
    assert [chunk.seq for chunk in chunks] == [chunk.seq for chunk in step.chunks]
    return [(chunk.draft_ids, chunk.num_drafted_tokens) for chunk in step.chunks]


def test_guesses_are_made_together_place_by_place() -> None:
    """First what is lacking, prompts too; then the last guess of each that wants one more."""
    model = Counting()
    prompt = with_prompt("p", range(20))

    filled = fill(
        model,
        last_token(decoding("a", 9, 7), 3),
        last_token(decoding("b", 5, 4), 1),
        Chunk(prompt, 0, 6),
        last_token(decoding("c", 3, 2)),
    )

    assert [((9, 10, 11), 11), ((5,), 5), ((), 6), ((), 3)] == filled
    first, *others = model.calls
    assert [("b", 4, [4]), ("c", 2, [2]), ("a", 7, [7, 8]), ("p", 0, list(range(6)))] == first
    assert [[("a", 9, [9])], [("a", 10, [10])]] == others


def test_what_it_is_behind_may_wait() -> None:
    """Up to some tokens, as long as nobody wants a guess; then all of them are computed at once."""
    model, num_tokens = Counting(), MAX_TOKENS_BEHIND + 20

    assert [((), 20)] == fill(model, last_token(decoding("a", num_tokens, 20)))
    assert [] == model.calls
    assert [((), num_tokens + 1)] == fill(model, last_token(decoding("a", num_tokens + 1, 20)))
    assert [[("a", 20, list(range(20, num_tokens + 1)))]] == model.calls


def test_many_sequences_may_not_wait_long() -> None:
    """All that is behind is computed in one step, which shall not be a long one."""
    model = Counting()
    chunks = [last_token(decoding(str(i), 20, 12)) for i in range(MAX_ROWS_BEHIND // 8 + 1)]

    fill(model, *chunks[1:])
    assert [] == model.calls
    fill(model, *chunks)
    assert 1 == len(model.calls)


def test_no_guess_follows_logits_that_are_not_finite() -> None:
    """Nor does the request fail: it is not the model's own."""
    assert [((6,), 6)] == fill(Counting(broken=6), last_token(decoding("a", 6, 5), 3))


@pytest.mark.parametrize("vocab_size", [30, 50])
def test_another_size_of_the_vocabulary_is_padding(vocab_size: int) -> None:
    """The guesses are of the model's vocabulary, and the draft model reads ids of its own."""
    model = Counting(vocab_size)
    seq = decoding("a", 39, 34)

    ((draft_ids, _),) = fill(model, last_token(seq, 3))

    assert all(0 <= token_id < min(vocab_size, VOCAB_SIZE) for token_id in draft_ids)
    assert all(max(ids) < vocab_size for call in model.calls for _, _, ids in call)
    assert list(range(39)) == seq.token_ids
