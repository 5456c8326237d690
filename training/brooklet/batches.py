"""Batches: the texts of one training step, laid out so that little is padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

import torch
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerFast

from training.brooklet.corpus import conversation, document
from training.brooklet.schedule import PUBLISHED, Schedule
from training.brooklet.tokenizer import TURN_END, encode_conversation

TOKENS = 8192  # of a step, about
DOCUMENTS = 0.04  # how much of the corpus is plain text
# Length of a row, which holds several texts, and how many rows make the largest batch; the others
# have halves of that. There are few shapes since each is compiled, and small batches since they
# stay in the processor's cache.
SHAPES = {256: 8, 512: 4, 1024: 1}
LONGEST = 2560  # the length of the row that a longer text has for itself
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


def draw_text(
    tokenizer: PreTrainedTokenizerFast, rng: Random, step: int, schedule: Schedule = PUBLISHED
) -> Text:
    """Draw a conversation, or a plain text of which every token is to be learned."""
    if rng.random() >= DOCUMENTS:
        return encode_conversation(tokenizer, conversation(rng, schedule.mix_at(step)))
    ids = tokenizer.encode(document(rng) + TURN_END, add_special_tokens=False)
    return ids, [True] * len(ids)


def _rows(draw: Callable[[], Text], tokens: int) -> dict[int, list[Row]]:
    """Draw so many tokens; put each text, the longest first, into the first row with room."""
    texts: list[Text] = []
    while sum(len(ids) for ids, _ in texts) < tokens:
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


def _split(rows: list[Row], most: int) -> Iterator[list[Row]]:
    """Part rows into batches of the largest size, then of halves of it."""
    while rows:
        while most > len(rows):
            most //= 2
        yield rows[:most]
        rows = rows[most:]


class Steps(Dataset[list[Batch]]):
    """The batches of every step; the same for the same seed and step.

    Where several processes share a step, each has one `part` of so many `parts`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        seed: int,
        draw: Callable[[PreTrainedTokenizerFast, Random, int], Text] = draw_text,
        *,
        part: int = 0,
        parts: int = 1,
    ) -> None:
        self._tokenizer = tokenizer
        self._seed = seed
        self._draw = draw
        self._part = part
        self._tokens = TOKENS // parts

    def __getitem__(self, step: int) -> list[Batch]:
        """Generate the batches of one step."""
        rng = Random(f"batch-{self._seed}-{step}-{self._part}")
        rows_of = _rows(lambda: self._draw(self._tokenizer, rng, step), self._tokens)
        return [
            _batch(rows, length)
            for length, of_length in rows_of.items()
            for rows in _split(of_length, SHAPES.get(length, 1))
        ]
