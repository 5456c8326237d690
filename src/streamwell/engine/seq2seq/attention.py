"""Where the tokens of a step live in the cache of an encoder-decoder, and attention over them.

The decoder's own keys and values and those of its encoder's output are of one shape, so one tensor
per layer holds both, and a block is a block. Chunks of as many tokens are computed together, each
over its own context: in most steps there is one such group, of all sequences that decode.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from streamwell.engine.seq2seq.families import RelativeBias
from streamwell.engine.sequence import Chunk
from streamwell.engine.transfer import to_device

#: Integers, or truths, on the host.
Ints = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Reads:
    """Sequences with as many rows of the batch each, and what they attend to.

    Rows `[first, first + num_seqs * num_rows)` of the batch, one sequence after the other.
    """

    first: int
    num_seqs: int
    num_rows: int
    #: `[num_seqs * length]` int64: slots of the cache. Padded places read slot 0, which is zero.
    #: `None`: the rows attend to each other.
    slots: torch.Tensor | None
    #: Additive, `[num_seqs or 1, num_heads or 1, num_rows, length]`; `None`: all see everything.
    mask: torch.Tensor | None

    @property
    def rows(self) -> slice:
        return slice(self.first, self.first + self.num_seqs * self.num_rows)


class DistanceBias:
    """T5's bias, by how far apart two tokens are, for all distances that occur."""

    def __init__(
        self, bias: RelativeBias, weight: torch.Tensor, max_len: int, *, is_causal: bool
    ) -> None:
        """`weight` is `[num_buckets, num_heads]`.

        Raises:
            ValueError: it has other rows than the buckets.
        """
        if weight.shape[0] != bias.num_buckets:
            raise ValueError(f"{weight.shape[0]} buckets of relative positions")
        distances = torch.arange(1 - max_len, max_len, device=weight.device)  # of key from query
        buckets = _buckets(bias, distances, is_causal=is_causal)
        #: `[num_heads, 2 * max_len - 1]`; distance `d` is column `origin + d`.
        self.table = weight[buckets].T.contiguous()
        self.origin = max_len - 1

    def at(self, distances: torch.Tensor) -> torch.Tensor:
        """`[num_heads, *shape]` for `[*shape]` distances of keys from their queries."""
        return self.table[:, distances + self.origin]


def _buckets(bias: RelativeBias, distances: torch.Tensor, *, is_causal: bool) -> torch.Tensor:
    """T5's buckets (Raffel et al. 2020): one per distance while small, then of growing width.

    An encoder has half of them for what comes after the query; a decoder, which sees nothing of
    that, has all of them for what came before.
    """
    num_buckets, first = bias.num_buckets, torch.zeros_like(distances)
    if is_causal:
        distances = (-distances).clamp(min=0)
    else:
        num_buckets //= 2
        first = (distances > 0) * num_buckets
        distances = distances.abs()
    num_exact = num_buckets // 2
    growth = math.log(bias.max_distance / num_exact)
    far = (distances.clamp(min=1).float() / num_exact).log() / growth * (num_buckets - num_exact)
    wide = (num_exact + far.long()).clamp(max=num_buckets - 1)
    return first + torch.where(distances < num_exact, distances, wide)


@dataclass(frozen=True, slots=True)
class EncoderLayout:
    """The inputs of a step that are read for the first time, laid end to end."""

    token_ids: torch.Tensor
    positions: torch.Tensor
    #: `[num_tokens]` int64: where what the decoder sees of each token goes.
    new_slots: torch.Tensor
    reads: tuple[Reads, ...]


@dataclass(frozen=True, slots=True)
class DecoderLayout:
    """The chunks of a step."""

    token_ids: torch.Tensor
    positions: torch.Tensor
    #: `[num_tokens]` int64: the slot of each new token.
    new_slots: torch.Tensor
    self_reads: tuple[Reads, ...]
    cross_reads: tuple[Reads, ...]


class Layouts:
    """Makes the layouts of steps."""

    def __init__(
        self,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        encoder_bias: DistanceBias | None,
        decoder_bias: DistanceBias | None,
    ) -> None:
        self._block_size = block_size
        self._dtype, self._device = dtype, device
        self._encoder_bias, self._decoder_bias = encoder_bias, decoder_bias

    def encoder(self, chunks: list[Chunk]) -> EncoderLayout | None:
        """Where the inputs of chunks that start their sequences go; `None` if there are none."""
        new = sorted((c for c in chunks if c.encoder_ids), key=lambda c: len(c.encoder_ids))
        if not new:
            return None
        lengths = [len(chunk.encoder_ids) for chunk in new]
        reads, first = [], 0
        for length, group in itertools.groupby(lengths):
            num_seqs = len(list(group))
            reads.append(Reads(first, num_seqs, length, None, self._encoder_mask(length)))
            first += num_seqs * length
        slots = [
            self._slots([c.seq.cross_block_ids], [n]) for c, n in zip(new, lengths, strict=True)
        ]
        return EncoderLayout(
            self._ids([i for chunk in new for i in chunk.encoder_ids]),
            self._ids([p for length in lengths for p in range(length)]),
            self._move(np.concatenate(slots, axis=1)[0]),
            tuple(reads),
        )

    def decoder(self, chunks: list[Chunk]) -> DecoderLayout:
        """Where chunks go, and what they read."""
        self_reads, cross_reads, new_slots, first = [], [], [], 0
        for num_rows, group in itertools.groupby(chunks, key=lambda chunk: chunk.num_tokens):
            seqs = list(group)
            ends = [chunk.end for chunk in seqs]
            slots = self._slots([chunk.seq.block_ids for chunk in seqs], ends)
            positions = np.array(ends)[:, None] + np.arange(-num_rows, 0)
            new_slots.append(np.take_along_axis(slots, positions, 1).ravel())
            mask = self._decoder_mask(positions, slots.shape[1])
            self_reads.append(Reads(first, len(seqs), num_rows, self._move(slots.ravel()), mask))
            inputs = [len(chunk.seq.encoder_ids) for chunk in seqs]
            slots = self._slots([chunk.seq.cross_block_ids for chunk in seqs], inputs)
            mask = self._cross_mask(inputs)
            cross_reads.append(Reads(first, len(seqs), num_rows, self._move(slots.ravel()), mask))
            first += len(seqs) * num_rows
        return DecoderLayout(
            self._ids([i for chunk in chunks for i in chunk.token_ids]),
            self._ids([p for chunk in chunks for p in range(chunk.start, chunk.end)]),
            self._move(np.concatenate(new_slots)),
            tuple(self_reads),
            tuple(cross_reads),
        )

    def _slots(self, tables: list[list[int]], lengths: list[int]) -> Ints:
        """`[len(tables), max(lengths)]`: the slots of each sequence, then zeros.

        What another sequence has left in a block is never read: it may not even be finite.
        """
        longest, size = max(lengths), self._block_size
        width = -(-longest // size)
        blocks = np.zeros((len(tables), width), np.int64)
        for row, table in zip(blocks, tables, strict=True):
            row[: len(table)] = table[:width]
        slots = (blocks[:, :, None] * size + np.arange(size)).reshape(len(tables), -1)[:, :longest]
        return np.where(np.arange(longest) < np.array(lengths)[:, None], slots, 0)

    def _encoder_mask(self, length: int) -> torch.Tensor | None:
        if self._encoder_bias is None:
            return None
        columns = torch.arange(length, device=self._device)
        return self._encoder_bias.at(columns - columns[:, None])[None]

    def _decoder_mask(self, positions: Ints, length: int) -> torch.Tensor | None:
        """For `[num_seqs, num_rows]` positions over their contexts of up to `length` tokens."""
        if self._decoder_bias is None and positions.min() == length - 1:
            return None
        distances = self._move(np.arange(length) - positions[..., None])
        if self._decoder_bias is None:
            mask = torch.zeros(distances.shape, dtype=self._dtype, device=self._device)[:, None]
        else:
            mask = self._decoder_bias.at(distances.clamp(max=0)).transpose(0, 1).contiguous()
        return mask.masked_fill_((distances > 0)[:, None], float("-inf"))

    def _cross_mask(self, lengths: list[int]) -> torch.Tensor | None:
        if min(lengths) == max(lengths):
            return None
        is_padding = self._move(np.arange(max(lengths)) >= np.array(lengths)[:, None])
        mask = torch.zeros(is_padding.shape, dtype=self._dtype, device=self._device)
        return mask.masked_fill_(is_padding, float("-inf"))[:, None, None]

    def _ids(self, values: list[int]) -> torch.Tensor:
        return to_device(torch.tensor(values, dtype=torch.int64), self._device)

    def _move(self, values: Ints) -> torch.Tensor:
        return to_device(torch.from_numpy(values), self._device)


def attend(
    query: torch.Tensor,
    key_values: torch.Tensor,
    reads: tuple[Reads, ...],
    scale: float,
) -> torch.Tensor:
    """Attention of a batch, group by group.

    Args:
        query: `[num_tokens, num_heads, head_dim]`.
        key_values: `[num_slots or num_tokens, 2, num_heads, head_dim]`, keys then values: the
            cache, or those of the rows themselves.
        reads: who reads what; they cover all rows in order.
        scale: factor of the scores.

    Returns:
        `[num_tokens, num_heads * head_dim]`.
    """
    outs = []
    for group in reads:
        rows = query if len(reads) == 1 else query[group.rows]
        if group.slots is not None:
            read = key_values.index_select(0, group.slots)
        else:
            read = key_values if len(reads) == 1 else key_values[group.rows]
        read = read.view(group.num_seqs, -1, *key_values.shape[1:])
        keys, values = read.permute(2, 0, 3, 1, 4).unbind()
        out = functional.scaled_dot_product_attention(
            rows.view(group.num_seqs, group.num_rows, *query.shape[1:]).transpose(1, 2),
            keys,
            values,
            attn_mask=group.mask,
            scale=scale,
        )
        outs.append(out.transpose(1, 2).reshape(len(rows), -1))
    return outs[0] if len(outs) == 1 else torch.cat(outs)
