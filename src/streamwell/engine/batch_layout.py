"""Where the tokens of one step live in the paged cache, and what each sequence reads of it.

There is no mask between sequences, and those that are read together are of about one length, so
work grows with the sum of the contexts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from streamwell.engine.dot_product import additive
from streamwell.engine.sequence import Chunk, Step
from streamwell.engine.transfer import to_device

#: Contexts up to this length are read together; of longer ones, those up to twice the shortest.
SHORT_CONTEXT = 256


@dataclass(frozen=True, slots=True)
class DecodeRows:
    """Sequences of about one length that compute one token each."""

    #: Where they are in the batch.
    rows: slice | torch.Tensor
    count: int
    #: `[count]` int64, context length of each, its new token included.
    lengths: torch.Tensor
    #: `[count * max_length]` int64; padded places read slot 0, which is zero.
    slots: torch.Tensor
    max_length: int
    #: Whether all contexts have this length.
    is_even: bool
    masks: dict[int | None, torch.Tensor] = field(default_factory=dict)

    def mask(self, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
        """Additive `[count, 1, 1, max_length]`; `None` when every row reads everything."""
        if self.is_even and (window is None or window >= self.max_length):
            return None
        if window not in self.masks:
            columns = torch.arange(self.max_length, device=self.lengths.device)
            visible = columns < self.lengths[:, None]
            if window is not None:
                visible &= columns >= self.lengths[:, None] - window
            self.masks[window] = additive(visible, dtype)[:, None, None]
        return self.masks[window]


@dataclass(frozen=True, slots=True)
class PrefillRows:
    """One chunk of more than one token; rows `[first, first + count)` of the batch."""

    first: int
    count: int
    #: Position of the chunk's first token.
    start: int
    #: `[start + count]` int64, or `None` when the chunk starts its sequence.
    slots: torch.Tensor | None
    masks: dict[int | None, torch.Tensor] = field(default_factory=dict)

    def mask(self, window: int | None, like: torch.Tensor) -> torch.Tensor | None:
        """Additive `[count, start + count]`; `None` means plain causal."""
        if self.start == 0 and (window is None or window >= self.count):
            return None
        if window not in self.masks:
            columns = torch.arange(self.start + self.count, device=like.device)
            rows = columns[self.start :, None]
            visible = columns <= rows
            if window is not None:
                visible &= columns > rows - window
            self.masks[window] = additive(visible, like.dtype)
        return self.masks[window]


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """Where the tokens of one step live; rows are decodes first, then prefill chunks."""

    #: `[num_tokens]` int64: the slot of each new token.
    new_slots: torch.Tensor
    decodes: tuple[DecodeRows, ...]
    prefills: tuple[PrefillRows, ...]


def order_chunks(step: Step) -> list[Chunk]:
    """The step's chunks in batch order: those of one token first."""
    return sorted(step.chunks, key=lambda chunk: chunk.num_tokens > 1)


def build_layout(chunks: list[Chunk], block_size: int, device: torch.device) -> BatchLayout:
    """Lay out chunks that `order_chunks` has ordered."""
    num_decodes = sum(chunk.num_tokens == 1 for chunk in chunks)
    decoding = chunks[:num_decodes]
    slots = [torch.tensor([_last_slot(chunk, block_size) for chunk in decoding], dtype=torch.int64)]
    prefills, first = [], num_decodes
    for chunk in chunks[num_decodes:]:
        context = _context_slots(chunk, block_size)
        slots.append(context[chunk.start :])
        old = to_device(context, device) if chunk.start else None
        prefills.append(PrefillRows(first, chunk.num_tokens, chunk.start, old))
        first += chunk.num_tokens
    decodes = _decode_rows(decoding, block_size, device)
    return BatchLayout(to_device(torch.cat(slots), device), decodes, tuple(prefills))


def _context_slots(chunk: Chunk, block_size: int) -> torch.Tensor:
    blocks = torch.tensor(chunk.seq.block_ids, dtype=torch.int64)
    return (blocks[:, None] * block_size + torch.arange(block_size)).view(-1)[: chunk.end]


def _last_slot(chunk: Chunk, block_size: int) -> int:
    block, place = divmod(chunk.end - 1, block_size)
    return chunk.seq.block_ids[block] * block_size + place


def _decode_rows(
    chunks: list[Chunk], block_size: int, device: torch.device
) -> tuple[DecodeRows, ...]:
    groups = _of_like_length([chunk.end for chunk in chunks])
    if len(groups) == 1:
        return (_padded(slice(0, len(chunks)), chunks, block_size, device),)
    return tuple(
        _padded(
            to_device(torch.tensor(group), device),
            [chunks[row] for row in group],
            block_size,
            device,
        )
        for group in groups
    )


def are_of_like_length(lengths: list[int]) -> bool:
    """Whether none is padded to more than twice its length, or to `SHORT_CONTEXT`."""
    return max(lengths) <= max(SHORT_CONTEXT, 2 * min(lengths))


def _of_like_length(lengths: list[int]) -> list[list[int]]:
    """Group rows, each of which has as many neighbours as are of like length."""
    groups: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not groups or not are_of_like_length([lengths[groups[-1][0]], lengths[row]]):
            groups.append([])
        groups[-1].append(row)
    return groups


def _padded(
    rows: slice | torch.Tensor, chunks: list[Chunk], block_size: int, device: torch.device
) -> DecodeRows:
    lengths = torch.tensor([chunk.end for chunk in chunks])
    max_length = int(lengths.max())
    width = -(-max_length // block_size)
    tables = [c.seq.block_ids[:width] + [0] * (width - len(c.seq.block_ids)) for c in chunks]
    blocks = torch.tensor(tables, dtype=torch.int64)
    slots = (blocks[:, :, None] * block_size + torch.arange(block_size)).view(len(chunks), -1)
    slots = slots[:, :max_length]
    # never read what another sequence left in a block: it may not even be finite
    slots = slots.masked_fill(torch.arange(max_length) >= lengths[:, None], 0)
    is_even = int(lengths.min()) == max_length
    lengths, slots = to_device(lengths, device), to_device(slots.reshape(-1), device)
    return DecodeRows(rows, len(chunks), lengths, slots, max_length, is_even)
