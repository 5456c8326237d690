"""Steps in which every sequence computes one token, recorded as CUDA graphs and replayed.

Such a step is hundreds of kernels that take microseconds each: launching them one by one takes
longer than they do. A graph launches all of them at once, with the shapes and at the addresses that
it was recorded with. So there is one for each bucket, a power of two of sequences and one of cache
places that each of them reads; what it reads is copied to the same place for every step. All are
recorded while the model loads: nobody waits for one, and what memory they take is known.

After "Getting Started with CUDA Graphs" (NVIDIA 2019), through PyTorch's `torch.cuda.graph`.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
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

#: Longest context of a graph, in tokens. In it few of a GPU's processors attend to one sequence;
#: launched alone, PyTorch's attention divides a long context among all.
MOST_TOKENS = 4096
#: Keys and values that a graph reads in a layer, padding included. Reading more takes longer than
#: launching, and what they are copied to stays with the graphs.
MOST_BYTES = 64 << 20
#: In a table of inputs, the columns before those of the blocks: token id and position.
_TOKEN, _POSITION, _BLOCKS = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Recording:
    """What is recorded, and by whom."""

    record: Record
    max_num_seqs: int
    max_model_len: int


@dataclass(frozen=True, slots=True)
class _Graph:
    #: `[count, 2 + width]` int64, on the device: a row for each sequence.
    table: torch.Tensor
    replay: Replay


class DecodeGraphs:
    """The graphs of a decoder and its cache."""

    def __init__(self, decoder: Decoder, cache: PagedCache, recording: Recording) -> None:
        """Records them, the largest first; writes to block 1, which must be nobody's yet.

        The first that cannot be recorded, for want of memory perhaps, is the last one tried.
        """
        self._decoder = decoder
        self._cache = cache
        #: By numbers of sequences and blocks.
        self._graphs: dict[tuple[int, int], _Graph] = {}
        for bucket in sorted(self._buckets(recording), key=math.prod, reverse=True):
            table = to_device(_table([_nobodys()], *bucket), decoder.device)
            try:
                replay = recording.record(partial(self._compute, table))
            except RuntimeError as error:  # of memory, too
                warnings.warn(f"decode steps are launched one by one: {error}", stacklevel=2)
                return
            self._graphs[bucket] = _Graph(table, replay)

    def forward(self, chunks: list[Chunk]) -> torch.Tensor | None:
        """Compute chunks of one token each, and write their keys and values.

        Returns:
            Logits `[len(chunks), vocab_size]`, good until the next call; `None` if nothing was
            computed, because no graph is for such a step.
        """
        lengths = [chunk.end for chunk in chunks]
        bucket = _power_of_two(len(chunks)), self._width(max(lengths))
        graph = self._graphs.get(bucket) if are_of_like_length(lengths) else None
        if graph is None:
            return None
        graph.table.copy_(to_device(_table(chunks, *bucket), self._decoder.device))
        return graph.replay()[: len(chunks)]

    def are_right(self) -> bool:
        """Whether a graph gives what its step does, with other inputs than it was recorded with.

        Writes to blocks 1 and 2.
        """
        ids = [self._decoder.vocab_size // 2] * (self._cache.block_size + 1)
        seq = Sequence("", ids, SamplingParams(max_tokens=1), block_ids=[1, 2])
        chunks = [Chunk(seq, self._cache.block_size, 1), _nobodys()]
        replayed = self.forward(chunks)
        if replayed is None:
            return False
        table = to_device(_table(chunks, 2, self._width(len(ids))), self._decoder.device)
        expected = self._compute(table)
        tolerance = 0.02 * float(expected.nan_to_num().abs().max())
        return torch.allclose(replayed, expected, rtol=0, atol=tolerance, equal_nan=True)

    def _buckets(self, recording: Recording) -> Iterator[tuple[int, int]]:
        """Numbers of sequences and blocks."""
        longest = min(_power_of_two(recording.max_model_len), MOST_TOKENS)
        token_bytes = self._decoder.dtype.itemsize * max(
            shape.num_kv_heads * (shape.key_dim + shape.value_dim) for shape in self._decoder.shapes
        )
        counts = _doubled(1, _power_of_two(recording.max_num_seqs))
        widths = {self._width(length) for length in _doubled(1, longest)}
        for count, width in itertools.product(counts, widths):
            if count * width * self._cache.block_size * token_bytes <= MOST_BYTES:
                yield count, width

    def _width(self, length: int) -> int:
        """Blocks of the bucket of this context."""
        places = max(SHORT_CONTEXT, _power_of_two(length))
        return -(-places // self._cache.block_size)

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
        """Raises `RuntimeError`: it cannot be recorded. Nothing more should be, then."""
        with torch.cuda.device(self._device):
            current = torch.cuda.current_stream()
            self._stream.wait_stream(current)
            try:
                with torch.cuda.stream(self._stream):
                    compute()  # what is made at the first call, as workspaces, is no part
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                    result = compute()
            finally:
                # a failure leaves the other stream the current one (torch/cuda/graphs.py)
                torch.cuda.set_stream(current)
                current.wait_stream(self._stream)

        def replay() -> torch.Tensor:
            graph.replay()
            return result

        return replay


@torch.inference_mode()
def work(decoder: Decoder, block_size: int, record: Record) -> bool:
    """Whether a step of this decoder can be recorded, and is right when it is replayed."""
    cache = PagedCache(decoder.shapes, 2, block_size, decoder.dtype, decoder.device)
    few = Recording(record, max_num_seqs=2, max_model_len=block_size + 1)
    return DecodeGraphs(decoder, cache, few).are_right()


def _nobodys() -> Chunk:
    """A token that nobody has said, in a block that is nobody's."""
    return Chunk(Sequence("", [0], SamplingParams(max_tokens=1), block_ids=[1]), 0, 1)


def _doubled(first: int, last: int) -> Iterator[int]:
    while first <= last:
        yield first
        first *= 2


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
