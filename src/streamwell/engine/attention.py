"""The paged KV cache, and attention over it.

Ownership: `PagedCache` holds the tensors; which sequence owns which block is the scheduler's
affair (`block_pool`). A `BatchLayout` says, for one step, where each new token's key and value go
and which cached ones each sequence reads. Work grows with the sum of the contexts, not with
batch squared: there is no mask between sequences.

Paged attention after Kwon et al. 2023, "Efficient Memory Management for Large Language Model
Serving with PagedAttention".
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch

from streamwell.engine.dot_product import additive, dot_product
from streamwell.engine.sequence import Chunk, Step
from streamwell.engine.transfer import to_device


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer caches per token."""

    num_kv_heads: int
    key_dim: int
    value_dim: int


class PagedCache:
    """Keys and values of all layers, in slots of one token each.

    Layer `i` has keys `[num_slots, num_kv_heads, key_dim]` and values alike. Block `b` is slots
    `[b * block_size, (b + 1) * block_size)`. Block 0 belongs to nobody and stays zero.
    """

    def __init__(
        self,
        shapes: list[LayerShape],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.block_size = block_size
        slots = (num_blocks + 1) * block_size
        self.keys = [zeros((slots, s.num_kv_heads, s.key_dim), dtype, device) for s in shapes]
        self.values = [zeros((slots, s.num_kv_heads, s.value_dim), dtype, device) for s in shapes]

    @staticmethod
    def bytes_per_token(shapes: list[LayerShape], dtype: torch.dtype) -> int:
        return sum(s.num_kv_heads * (s.key_dim + s.value_dim) for s in shapes) * dtype.itemsize


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros for a cache."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy's zeros are untouched pages: memory is used as blocks are, and starting costs nothing
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, np.uint8)).view(dtype).view(shape)


@dataclass(frozen=True, slots=True)
class DecodeRows:
    """The sequences of a step that compute one token each; rows `[0, count)` of the batch."""

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
    decodes: DecodeRows | None
    prefills: tuple[PrefillRows, ...]


def order_chunks(step: Step) -> list[Chunk]:
    """The step's chunks in batch order: those of one token first."""
    return sorted(step.chunks, key=lambda chunk: chunk.num_tokens > 1)


def build_layout(chunks: list[Chunk], block_size: int, device: torch.device) -> BatchLayout:
    """Lay out chunks that `order_chunks` has ordered."""
    num_decodes = sum(chunk.num_tokens == 1 for chunk in chunks)
    decodes = _decode_rows(chunks[:num_decodes], block_size) if num_decodes else None
    slots, prefills, first = [], [], num_decodes
    if decodes is not None:
        last = decodes.lengths - 1
        slots.append(decodes.slots.view(num_decodes, -1).gather(1, last[:, None])[:, 0])
    for chunk in chunks[num_decodes:]:
        context = _context_slots(chunk, block_size)
        slots.append(context[chunk.start :])
        old = to_device(context, device) if chunk.start else None
        prefills.append(PrefillRows(first, chunk.num_tokens, chunk.start, old))
        first += chunk.num_tokens
    if decodes is not None:
        decodes = replace(
            decodes,
            lengths=to_device(decodes.lengths, device),
            slots=to_device(decodes.slots, device),
        )
    return BatchLayout(to_device(torch.cat(slots), device), decodes, tuple(prefills))


def _context_slots(chunk: Chunk, block_size: int) -> torch.Tensor:
    blocks = torch.tensor(chunk.seq.block_ids, dtype=torch.int64)
    return (blocks[:, None] * block_size + torch.arange(block_size)).view(-1)[: chunk.end]


def _decode_rows(chunks: list[Chunk], block_size: int) -> DecodeRows:
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
    return DecodeRows(len(chunks), lengths, slots.reshape(-1), max_length, is_even)


class Attention(Protocol):
    """What a decoder calls in each layer; see `PagedAttention`."""

    def __call__(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
    ) -> torch.Tensor: ...


class PagedAttention:
    """Attention of one step: writes the new keys and values, reads each sequence's own."""

    def __init__(self, cache: PagedCache, layout: BatchLayout) -> None:
        self._cache = cache
        self._layout = layout

    def __call__(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """Attend.

        Args:
            layer: index of the layer.
            query: `[num_tokens, num_heads, key_dim]`.
            key: `[num_tokens, num_kv_heads, key_dim]`, rotated already.
            value: `[num_tokens, num_kv_heads, value_dim]`.
            scale: factor of the scores.
            window: how many tokens back a token sees, itself included; `None` sees all.
            softcap: scores `x` become `softcap * tanh(x / softcap)`; `None` leaves them.

        Returns:
            `[num_tokens, num_heads, value_dim]`.
        """
        self._cache.keys[layer].index_copy_(0, self._layout.new_slots, key)
        self._cache.values[layer].index_copy_(0, self._layout.new_slots, value)
        out = query.new_empty((*query.shape[:2], value.shape[-1]))
        decodes = self._layout.decodes
        if decodes is not None:
            rows = slice(0, decodes.count)
            mask = decodes.mask(window, query.dtype)
            decoded = self._decode(layer, query[rows], decodes, mask, scale, softcap)
            if not self._layout.prefills:
                return decoded
            out[rows] = decoded
        for chunk in self._layout.prefills:
            rows = slice(chunk.first, chunk.first + chunk.count)
            if chunk.slots is None:
                keys, values = key[rows], value[rows]
            else:
                keys = self._cache.keys[layer].index_select(0, chunk.slots)
                values = self._cache.values[layer].index_select(0, chunk.slots)
            mask = chunk.mask(window, query)
            out[rows] = sequence_attention(query[rows], keys, values, mask, scale, softcap)
        return out

    def _decode(
        self,
        layer: int,
        query: torch.Tensor,
        rows: DecodeRows,
        mask: torch.Tensor | None,
        scale: float,
        softcap: float | None,
    ) -> torch.Tensor:
        count, num_heads, _ = query.shape
        keys = self._cache.keys[layer].index_select(0, rows.slots)
        values = self._cache.values[layer].index_select(0, rows.slots)
        # the query heads of one kv head share its keys: they are the "query positions" here
        grouped = query.view(count, keys.shape[1], -1, query.shape[-1])
        out = dot_product(
            grouped,
            keys.view(count, rows.max_length, *keys.shape[1:]).transpose(1, 2),
            values.view(count, rows.max_length, *values.shape[1:]).transpose(1, 2),
            mask,
            scale,
            softcap,
        )
        return out.reshape(count, num_heads, -1)


def sequence_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    softcap: float | None = None,
) -> torch.Tensor:
    """One sequence: `[count, num_heads, dim]` queries over `[length, num_kv_heads, dim]` keys.

    Without a mask it is causal, and as long as there are queries.
    """
    count, num_heads, _ = query.shape
    num_kv_heads = keys.shape[1]
    group = num_heads // num_kv_heads
    out = dot_product(
        query.view(count, num_kv_heads, group, -1).permute(1, 2, 0, 3),
        keys.transpose(0, 1)[:, None].expand(-1, group, -1, -1),  # a view: nothing is repeated
        values.transpose(0, 1)[:, None].expand(-1, group, -1, -1),
        mask,
        scale,
        softcap,
        is_causal=mask is None,
    )
    return out.permute(2, 0, 1, 3).reshape(count, num_heads, -1)
