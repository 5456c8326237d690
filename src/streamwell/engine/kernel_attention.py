"""Paged attention on GPUs: lays a step out for `paged_kernels`, and calls them.

Nothing of a layout depends on how long contexts are but the width of the table of blocks, so
sequences of any lengths are computed together, prompts beside streams.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from triton import next_power_of_2

from streamwell.engine.attention import PagedCache
from streamwell.engine.paged_kernels import attend_kernel, join_kernel, write_kernel
from streamwell.engine.sequence import Chunk
from streamwell.engine.transfer import to_device

#: Tokens of a prompt that a program computes, for one query head.
_TILE_TOKENS = 64
#: Bytes of keys, and of values, that a program reads at a time, and between how many places. Twice
#: both is what it keeps in the processor, and no GPU that Triton knows has less.
_READ_BYTES, _LEAST_PLACES, _MOST_PLACES = 16 << 10, 16, 128
#: Products of matrices in Triton have no fewer rows than this.
_LEAST_ROWS = 16
#: Programs per processor below which a stream's places are divided among more, and into how many.
_PROGRAMS, _MOST_PARTS = 2, 32
#: How many processors a device is taken to have that is no GPU: tests have no other.
_NUM_PROCESSORS = 16


@dataclass(frozen=True, slots=True)
class KernelLayout:
    """Where the tokens of one step live; rows are decodes first, then prefill chunks."""

    #: `[num_tokens]` int64: the slot of each new token.
    new_slots: torch.Tensor
    #: `[num_seqs, width]` int32; what is behind a sequence's last block is never read.
    blocks: torch.Tensor
    #: `[num_decodes, 4]` int32, as in `paged_kernels`; a token each.
    decodes: torch.Tensor
    #: `[num_tiles, 4]` int32, the same for everybody else.
    prefills: torch.Tensor


def lay_out(chunks: list[Chunk], block_size: int, device: torch.device) -> KernelLayout:
    """Lay out chunks that `order_chunks` has ordered."""
    width = max(len(chunk.seq.block_ids) for chunk in chunks)
    blocks = np.zeros((len(chunks), width), np.int32)
    slots, decodes, prefills, row = [], [], [], 0
    for seq, chunk in enumerate(chunks):
        blocks[seq, : len(chunk.seq.block_ids)] = chunk.seq.block_ids
        places = np.arange(chunk.start, chunk.end)
        slots.append(blocks[seq, places // block_size].astype(np.int64) * block_size)
        slots[-1] += places % block_size
        if chunk.num_tokens == 1:
            decodes.append((seq, row, chunk.start, 1))
        for first in range(0, chunk.num_tokens if chunk.num_tokens > 1 else 0, _TILE_TOKENS):
            count = min(_TILE_TOKENS, chunk.num_tokens - first)
            prefills.append((seq, row + first, chunk.start + first, count))
        row += chunk.num_tokens
    tiles = (np.array(each, np.int32).reshape(-1, 4) for each in (decodes, prefills))
    arrays = (np.concatenate(slots), blocks, *tiles)
    return KernelLayout(*(to_device(torch.from_numpy(array), device) for array in arrays))


def lay_out_decodes(positions: torch.Tensor, blocks: torch.Tensor, block_size: int) -> KernelLayout:
    """The same for one token of each sequence, on their device and without a look at its numbers.

    Args:
        positions: `[num_seqs]` int32.
        blocks: `[num_seqs, width]` int32.
    """
    own = blocks.gather(1, (positions // block_size)[:, None].long())[:, 0]
    rows = torch.arange(len(positions), dtype=torch.int32, device=positions.device)
    tiles = torch.stack((rows, rows, positions, torch.ones_like(rows)), 1)
    new_slots = own.long() * block_size + positions % block_size
    return KernelLayout(new_slots, blocks, tiles, tiles[:0])


def of_chunks(cache: PagedCache, chunks: list[Chunk]) -> KernelAttention:
    """A `torch_model.LayOut`."""
    return KernelAttention(cache, lay_out(chunks, cache.block_size, cache.device))


def of_decodes(cache: PagedCache, positions: torch.Tensor, blocks: torch.Tensor) -> KernelAttention:
    """A `decode_graphs.LayOutDecodes`."""
    return KernelAttention(cache, lay_out_decodes(positions, blocks, cache.block_size))


class _Work(NamedTuple):
    """What programs are given to compute."""

    tiles: torch.Tensor
    #: Query heads and rows of a program.
    heads: int
    rows: int
    #: Among how many programs the places of a tile are divided.
    parts: int


class KernelAttention:
    """Attention of one step, as `attention.PagedAttention` computes it."""

    def __init__(self, cache: PagedCache, layout: KernelLayout) -> None:
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
        """Attend; see `attention.PagedAttention`."""
        query, key, value = (_side_by_side(each) for each in (query, key, value))
        self._write(layer, key, value)
        num_heads, num_kv_heads = query.shape[1], key.shape[1]
        out = query.new_empty((*query.shape[:2], value.shape[-1]))
        group, decodes = num_heads // num_kv_heads, self._layout.decodes
        parts = _num_parts(len(decodes) * num_kv_heads, query.device)
        rows = max(_LEAST_ROWS, next_power_of_2(group))
        for work in (
            _Work(decodes, group, rows, parts),
            _Work(self._layout.prefills, 1, _TILE_TOKENS, 1),
        ):
            if len(work.tiles):
                self._attend(layer, query, out, work, scale, window, softcap, sinks)
        return out

    def _write(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        sizes = [each.shape[1] * each.shape[2] for each in (key, value)]
        write_kernel[(len(key),)](
            key,
            value,
            self._cache.keys[layer],
            self._cache.values[layer],
            self._layout.new_slots,
            key.stride(0),
            value.stride(0),
            *sizes,
            next_power_of_2(max(sizes)),
            num_warps=1,
        )

    def _attend(
        self,
        layer: int,
        query: torch.Tensor,
        out: torch.Tensor,
        work: _Work,
        scale: float,
        window: int | None,
        softcap: float | None,
        sinks: torch.Tensor | None,
    ) -> None:
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        num_heads, (_, num_kv_heads, key_dim), value_dim = out.shape[1], keys.shape, out.shape[2]
        spans = [max(_LEAST_ROWS, next_power_of_2(dim)) for dim in (key_dim, value_dim)]
        places = _READ_BYTES // (max(spans) * keys.element_size())
        shape = (len(work.tiles), num_heads, work.parts)
        found, peaks, sums = out, out, out
        if work.parts > 1:
            peaks, sums = torch.empty((2, *shape), device=out.device).unbind()
            found = torch.empty((*shape, value_dim), device=out.device)
        attend_kernel[(shape[0], num_heads // work.heads, work.parts)](
            query,
            keys,
            values,
            found,
            peaks,
            sums,
            work.tiles,
            self._layout.blocks,
            out if sinks is None else sinks,
            query.stride(0),
            self._layout.blocks.stride(0),
            scale,
            softcap or 1.0,
            window or 0,
            softcap is not None,
            sinks is not None,
            work.heads,
            num_heads // num_kv_heads,
            num_heads,
            key_dim,
            value_dim,
            *spans,
            self._cache.block_size,
            work.rows,
            min(max(places, _LEAST_PLACES), _MOST_PLACES),
            work.parts,
            num_warps=4,
            num_stages=2,
        )
        if work.parts > 1:  # decodes, which are the first rows
            grid = (shape[0] * num_heads,)
            join_kernel[grid](found, peaks, sums, out, value_dim, spans[1], work.parts, num_warps=1)


def _side_by_side(heads: torch.Tensor) -> torch.Tensor:
    """`[num_tokens, heads, dim]` with the heads of a token next to each other."""
    _, count, dim = heads.shape
    is_so = heads.stride(2) == 1 and (count == 1 or heads.stride(1) == dim)
    return heads if is_so else heads.contiguous()


def _num_parts(num_programs: int, device: torch.device) -> int:
    """A power of two: as many as keep the processors busy."""
    parts = 1
    while parts < _MOST_PARTS and 2 * parts * num_programs <= _PROGRAMS * _num_processors(device):
        parts *= 2
    return parts


@functools.cache
def _num_processors(device: torch.device) -> int:
    if device.type != "cuda":
        return _NUM_PROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count
