"""Batches: examples as tensors, those of similar length together."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import torch
from transformers import PreTrainedTokenizerFast

from training.brooklet_t5.corpus import example

EXAMPLES_PER_STEP = 128
GROUPS_PER_STEP = 2  # as one group, half of all tokens would be padding
IGNORED = -100


@dataclass(frozen=True)
class Batch:
    """Inputs and outputs, padded at their ends."""

    token_ids: torch.Tensor  # (rows, input length)
    attends: torch.Tensor  # (rows, input length), 0 where padding is
    targets: torch.Tensor  # (rows, output length), IGNORED where padding is

    @property
    def num_targets(self) -> int:
        """How many tokens have to be predicted."""
        return int((self.targets != IGNORED).sum())


def batches_of_step(tokenizer: PreTrainedTokenizerFast, seed: int, step: int) -> list[Batch]:
    """Generate what one step learns from; it depends on the seed and the step alone."""
    rng = Random(f"batch-{seed}-{step}")
    drawn = [example(rng) for _ in range(EXAMPLES_PER_STEP)]
    sources: list[list[int]] = tokenizer([item.source for item in drawn])["input_ids"]
    targets: list[list[int]] = tokenizer([item.target for item in drawn])["input_ids"]
    pairs = sorted(zip(sources, targets, strict=True), key=lambda pair: sum(map(len, pair)))
    rows = EXAMPLES_PER_STEP // GROUPS_PER_STEP
    groups = (pairs[start : start + rows] for start in range(0, len(pairs), rows))
    return [_batch(group, tokenizer.pad_token_id) for group in groups]


def _batch(pairs: list[tuple[list[int], list[int]]], pad: int) -> Batch:
    sources, targets = zip(*pairs, strict=True)
    token_ids = _padded(sources, pad)
    attends = _padded([[1] * len(ids) for ids in sources], 0)
    return Batch(token_ids, attends, _padded(targets, IGNORED))


def _padded(rows: list[list[int]] | tuple[list[int], ...], filler: int) -> torch.Tensor:
    length = max(map(len, rows))
    return torch.tensor([row + [filler] * (length - len(row)) for row in rows])
