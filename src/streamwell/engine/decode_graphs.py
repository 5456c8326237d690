"""Steps in which every sequence computes one token, recorded as CUDA graphs and replayed.

Such a step is hundreds of kernels that take microseconds each: launching them one by one takes
longer than they do. A graph launches all of them at once, with the shapes and at the addresses that
it was recorded with. So there is one for each bucket, a power of two of sequences and one of cache
places that each of them reads; what it reads is copied to the same place for every step.

After "Getting Started with CUDA Graphs" (NVIDIA 2019), through PyTorch's `torch.cuda.graph`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from streamwell.core.types import SamplingParams
from streamwell.engine.attention import PagedAttention, PagedCache
from streamwell.engine.batch_layout import (
    SHORT_CONTEXT,
    BatchLayout,
    DecodeRows,
    are_of_like_length,
)
from streamwell.engine.decoder import Decoder
from streamwell.engine.sequence import Chunk, Sequence
from streamwell.engine.transfer import to_device

#: Computes with what its inputs hold now; the next call overwrites its result.
Replay = Callable[[], torch.Tensor]
#: Makes a `Replay` of a computation; what it raises is a `RuntimeError`.
Record = Callable[[Replay], Replay]

#: Cache places that a graph may read, padding included. A step that reads more is longer than its
#: launches, and what it reads is held by the graph for good.
MOST_PLACES = 1 << 17
#: In a table of inputs, the columns before those of the blocks: token id and position.
_TOKEN, _POSITION, _BLOCKS = 0, 1, 2


@dataclass(frozen=True, slots=True)
class _Graph:
    #: `[count, 2 + width]` int64, on the device: a row for each sequence.
    table: torch.Tensor
    replay: Replay


class DecodeGraphs:
    """The graphs of a decoder and its cache, each recorded when its bucket is first met."""

    def __init__(self, decoder: Decoder, cache: PagedCache, record: Record) -> None:
        self._decoder = decoder
        self._cache = cache
        self._record = record
        #: By numbers of sequences and blocks; `None` where recording failed.
        self._graphs: dict[tuple[int, int], _Graph | None] = {}

    def forward(self, chunks: list[Chunk]) -> torch.Tensor | None:
        """Compute chunks of one token each, and write their keys and values.

        Returns:
            Logits `[len(chunks), vocab_size]`, good until the next call; `None` if nothing was
            computed, because no graph is for such a step.
        """
        lengths = [chunk.end for chunk in chunks]
        count, width = _power_of_two(len(chunks)), self._width(max(lengths))
        is_large = count * width * self._cache.block_size > MOST_PLACES
        if is_large or not are_of_like_length(lengths):
            return None
        table = to_device(_table(chunks, count, width), self._decoder.device)
        if (count, width) not in self._graphs:
            self._graphs[count, width] = self._recorded(table)
        graph = self._graphs[count, width]
        if graph is None:
            return None
        graph.table.copy_(table)
        return graph.replay()[: len(chunks)]

    def is_right(self) -> bool:
        """Whether a graph gives what its step does; writes to block 1."""
        seq = Sequence("", [0], SamplingParams(max_tokens=1), block_ids=[1])
        chunks = [Chunk(seq, 0, 1)]
        replayed = self.forward(chunks)
        table = to_device(_table(chunks, 1, self._width(1)), self._decoder.device)
        expected = self._compute(table)
        tolerance = 0.02 * float(expected.abs().max())
        return replayed is not None and torch.allclose(replayed, expected, rtol=0, atol=tolerance)

    def _width(self, length: int) -> int:
        """Blocks of the bucket of this context."""
        places = max(SHORT_CONTEXT, _power_of_two(length))
        return -(-places // self._cache.block_size)

    def _recorded(self, table: torch.Tensor) -> _Graph | None:
        try:
            return _Graph(table, self._record(partial(self._compute, table)))
        except RuntimeError as error:  # of memory, too
            warnings.warn(f"a step is not replayed, but launched: {error}", stacklevel=2)
            return None

    def _compute(self, table: torch.Tensor) -> torch.Tensor:
        """Logits `[count, vocab_size]` of a table's sequences; every shape follows from its own."""
        device, block_size = table.device, self._cache.block_size
        token_ids, positions, blocks = table[:, _TOKEN], table[:, _POSITION], table[:, _BLOCKS:]
        count, length = len(table), blocks.shape[1] * block_size
        places = torch.arange(block_size, device=device)
        slots = (blocks[:, :, None] * block_size + places).view(count, length)
        new_slots = slots.gather(1, positions[:, None])[:, 0]
        lengths = positions + 1
        # never read what another sequence left in a block: it may not even be finite
        slots = slots.masked_fill(torch.arange(length, device=device) >= lengths[:, None], 0)
        decodes = DecodeRows(slice(0, count), count, lengths, slots.view(-1), length, is_even=False)
        return self._decoder.forward(
            token_ids,
            positions,
            torch.arange(count, device=device),
            PagedAttention(self._cache, BatchLayout(new_slots, (decodes,), ())),
        )


class CudaRecorder:
    """Records CUDA graphs that never run at the same time: they share what memory they work in."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # graphs that share memory are recorded on one stream
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, compute: Replay) -> Replay:
        with torch.cuda.device(self._device):
            current = torch.cuda.current_stream()
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                compute()  # what is made at the first call, as libraries' workspaces, is no part
            current.wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                result = compute()

        def replay() -> torch.Tensor:
            graph.replay()
            return result

        return replay


@torch.inference_mode()
def works(decoder: Decoder, block_size: int, record: Record) -> bool:
    """Whether a step of this decoder can be recorded, and is right when it is replayed."""
    cache = PagedCache(decoder.shapes, 1, block_size, decoder.dtype, decoder.device)
    return DecodeGraphs(decoder, cache, record).is_right()


def _power_of_two(number: int) -> int:
    """The least that is no less than `number`."""
    return 1 << (number - 1).bit_length()


def _table(chunks: list[Chunk], count: int, width: int) -> torch.Tensor:
    """`[count, 2 + width]` int64; rows that are left over are the first one again."""
    table = np.zeros((count, _BLOCKS + width), np.int64)
    for row, chunk in zip(table, chunks, strict=False):
        blocks = chunk.seq.block_ids[:width]
        row[_TOKEN], row[_POSITION] = chunk.token_ids[0], chunk.start
        row[_BLOCKS : _BLOCKS + len(blocks)] = blocks
    table[len(chunks) :] = table[0]
    return torch.from_numpy(table)
