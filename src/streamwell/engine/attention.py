"""The paged KV cache, and attention over it.

Ownership: `PagedCache` holds the tensors; which sequence owns which block is the scheduler's
affair (`block_pool`), and which slots a step writes and reads that of `batch_layout`.

Paged attention after Kwon et al. 2023, "Efficient Memory Management for Large Language Model
Serving with PagedAttention".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from streamwell.engine.batch_layout import BatchLayout, DecodeRows
from streamwell.engine.dot_product import dot_product


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
        self.device = device
        slots = (num_blocks + 1) * block_size
        self.keys = [zeros((slots, s.num_kv_heads, s.key_dim), dtype, device) for s in shapes]
        self.values = [zeros((slots, s.num_kv_heads, s.value_dim), dtype, device) for s in shapes]

    @staticmethod
    def bytes_per_token(shapes: list[LayerShape], dtype: torch.dtype) -> int:
        return sum(s.num_kv_heads * (s.key_dim + s.value_dim) for s in shapes) * dtype.itemsize

    def write(
        self, layer: int, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> None:
        """Put `[count, num_kv_heads, dim]` into as many slots, `[count]` int64."""
        self.keys[layer].index_copy_(0, slots, key)
        self.values[layer].index_copy_(0, slots, value)

    def read(self, layer: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and values in some slots, `[count]` int64: `[count, num_kv_heads, dim]`."""
        keys, values = self.keys[layer], self.values[layer]
        return keys.index_select(0, slots), values.index_select(0, slots)


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros for a cache."""
    if device.type != "cpu" or 0 in shape:
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy's zeros are untouched pages: memory is used as blocks are, and starting costs nothing
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, np.uint8)).view(dtype).view(shape)


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
        sinks: torch.Tensor | None = None,
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
        sinks: torch.Tensor | None = None,
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
            sinks: `[num_heads]`: a score more in softmax, of a key without a value.

        Returns:
            `[num_tokens, num_heads, value_dim]`.
        """
        self._cache.write(layer, self._layout.new_slots, key, value)
        out = query.new_empty((*query.shape[:2], value.shape[-1]))
        for decodes in self._layout.decodes:
            mask = decodes.mask(window, query.dtype)
            out[decodes.rows] = self._decode(
                layer, query[decodes.rows], decodes, mask, scale, softcap, sinks
            )
        for chunk in self._layout.prefills:
            rows = slice(chunk.first, chunk.first + chunk.count)
            if chunk.slots is None:
                keys, values = key[rows], value[rows]
            else:
                keys, values = self._cache.read(layer, chunk.slots)
            mask = chunk.mask(window, query)
            out[rows] = sequence_attention(query[rows], keys, values, mask, scale, softcap, sinks)
        return out

    def _decode(
        self,
        layer: int,
        query: torch.Tensor,
        rows: DecodeRows,
        mask: torch.Tensor | None,
        scale: float,
        softcap: float | None,
        sinks: torch.Tensor | None,
    ) -> torch.Tensor:
        count, num_heads, _ = query.shape
        keys, values = self._cache.read(layer, rows.slots)
        # the query heads of one kv head share its keys: they are the "query positions" here
        grouped = query.view(count, keys.shape[1], -1, query.shape[-1])
        out = dot_product(
            grouped,
            keys.view(count, rows.max_length, *keys.shape[1:]).transpose(1, 2),
            values.view(count, rows.max_length, *values.shape[1:]).transpose(1, 2),
            mask,
            scale,
            softcap,
            None if sinks is None else sinks.view(keys.shape[1], -1, 1),
        )
        return out.reshape(count, num_heads, -1)


def sequence_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
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
        None if sinks is None else sinks.view(num_kv_heads, group, 1, 1),
        is_causal=mask is None,
    )
    return out.permute(2, 0, 1, 3).reshape(count, num_heads, -1)
