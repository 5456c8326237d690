"""Batches: the texts of one training step, laid out so that little is padding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import torch
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerFast

from training.brooklet.corpus import conversation, document
from training.brooklet.themes import mix_at
from training.brooklet.tokenizer import TURN_END, encode_conversation

TOKENS = 8192  # of a step, about
DOCUMENTS = 0.04  # how much of the corpus is plain text
# Length of a row, which holds several texts, and how many rows make a batch. There are few shapes
# since each is compiled, and small batches since they stay in the processor's cache.
SHAPES = {256: 8, 512: 4, 1024: 1}
LONGEST = 2048  # the length of the row that a longer text has for itself
IGNORED = -100

Text = tuple[list[int], list[bool]]  # its tokens, and which of them are to be learned


@dataclass
class Row:
    """Texts, one after the other, as they lie in a row of a batch."""

    token_ids: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)  # the token after each, or IGNORED
    positions: list[int] = field(default_factory=list)  # from 0 in each text
    owners: list[int] = field(default_factory=list)  # which text each token belongs to

    def add(self, ids: list[int], is_target: list[bool]) -> None:
        """Put a text at the end; what its last token predicts is not to be learned."""
        following = zip(ids[1:], is_target[1:], strict=True)
        self.targets += [token if wanted else IGNORED for token, wanted in following] + [IGNORED]
        self.owners += [self.owners[-1] + 1 if self.owners else 0] * len(ids)
        self.positions += range(len(ids))
        self.token_ids += ids

    def padded(self, length: int) -> tuple[list[int], list[int], list[int], list[int]]:
        """Fill up to a length with what nobody looks at."""
        room = length - len(self.token_ids)
        return (
            self.token_ids + [0] * room,
            self.targets + [IGNORED] * room,
            self.positions + [0] * room,
            self.owners + [-1] * room,
        )


@dataclass
class Batch:
    """Rows of one length."""

    token_ids: torch.Tensor  # (rows, length)
    targets: torch.Tensor  # (rows, length), IGNORED where nothing is to be learned
    positions: torch.Tensor  # (rows, length), from 0 in each text
    owners: torch.Tensor  # int32 (rows, length), which text of its row each token belongs to


def draw_text(tokenizer: PreTrainedTokenizerFast, rng: Random, step: int) -> Text:
    """Draw a conversation, or a plain text of which every token is to be learned."""
    if rng.random() >= DOCUMENTS:
        return encode_conversation(tokenizer, conversation(rng, mix_at(step)))
    ids = tokenizer.encode(document(rng) + TURN_END, add_special_tokens=False)
    return ids, [True] * len(ids)


def _rows(draw: Callable[[], Text]) -> dict[int, list[Row]]:
    """Draw the texts of a step and put each, the longest first, into the first row with room."""
    texts: list[Text] = []
    while sum(len(ids) for ids, _ in texts) < TOKENS:
        ids, is_target = draw()
        texts.append((ids[:LONGEST], is_target[:LONGEST]))
    rows: dict[int, list[Row]] = {length: [] for length in (LONGEST, *SHAPES)}
    for ids, is_target in sorted(texts, key=lambda text: len(text[0]), reverse=True):
        least = next((size for size in SHAPES if len(ids) <= size), LONGEST)
        fitting = (
            row for size in SHAPES for row in rows[size] if len(row.token_ids) + len(ids) <= size
        )
        row = next(fitting, None)
        if row is None:
            row = Row()
            rows[least].append(row)
        row.add(ids, is_target)
    return rows


def _batch(rows: list[Row], length: int) -> Batch:
    columns = zip(*(row.padded(length) for row in rows), strict=True)
    token_ids, targets, positions, owners = (torch.tensor(column) for column in columns)
    return Batch(token_ids, targets, positions, owners.int())


class Steps(Dataset[list[Batch]]):
    """The batches of every step; the same for the same seed and step."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        seed: int,
        draw: Callable[[PreTrainedTokenizerFast, Random, int], Text] = draw_text,
    ) -> None:
        self._tokenizer = tokenizer
        self._seed = seed
        self._draw = draw

    def __getitem__(self, step: int) -> list[Batch]:
        """Generate the batches of one step."""
        rng, batches = Random(f"batch-{self._seed}-{step}"), []
        for length, rows in _rows(lambda: self._draw(self._tokenizer, rng, step)).items():
            size = SHAPES.get(length, 1)
            rows += [Row() for _ in range(-len(rows) % size)]
            starts = range(0, len(rows), size)
            batches += [_batch(rows[start : start + size], length) for start in starts]
        return batches
