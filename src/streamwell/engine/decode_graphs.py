"""Steps in which every sequence computes one token, recorded as CUDA graphs and replayed.

Such a step is hundreds of kernels that take microseconds each: launching them one by one takes
longer than they do. A graph launches all of them at once, with the shapes and at the addresses that
it was recorded with. So there is one for each bucket, a power of two of sequences; what it reads is
copied to the same place for every step, and how long contexts are is data. All are recorded while
the model loads: nobody waits for one, and what memory they take is known.

After "Getting Started with CUDA Graphs" (NVIDIA 2019), through PyTorch's `torch.cuda.graph`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from streamwell.core.types import SamplingParams
from streamwell.engine.attention import Attention, PagedCache
from streamwell.engine.decoder import Decoder
from streamwell.engine.sequence import Chunk, Sequence
from streamwell.engine.transfer import to_device

#: Computes with what its inputs hold now; the next call overwrites its result.
Replay = Callable[[], torch.Tensor]
#: Makes a `Replay` of a computation; what it raises is a `RuntimeError`.
Record = Callable[[Replay], Replay]
#: Attention of a token for each sequence, by positions `[count]` and blocks `[count, width]`, both
#: int32 and on the device: where a look at them cannot be recorded.
LayOutDecodes = Callable[[PagedCache, torch.Tensor, torch.Tensor], Attention]

#: In a table of inputs, the columns before those of the blocks: token id and position. Blocks begin
#: at a multiple of 16 bytes, as those of other steps do: Triton compiles kernels for that.
_TOKEN, _POSITION, _BLOCKS = 0, 1, 4
#: Stands for a token that only the device knows.
_UNKNOWN = [0]


@dataclass(frozen=True, slots=True)
class Recording:
    """What is recorded, and by whom."""

    record: Record
    lay_out: LayOutDecodes
    max_num_seqs: int
    max_model_len: int


@dataclass(frozen=True, slots=True)
class _Graph:
    #: `[count, 4 + width]` int32, on the device: a row for each sequence.
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
        self._lay_out = recording.lay_out
        #: By numbers of sequences.
        self._graphs: dict[int, _Graph] = {}
        self._record(recording)

    def __len__(self) -> int:
        return len(self._graphs)

    def _record(self, recording: Recording) -> None:
        decoder, cache = self._decoder, self._cache
        width = -(-recording.max_model_len // cache.block_size)
        counts = _doubled(1, _power_of_two(recording.max_num_seqs))
        for count in sorted(counts, reverse=True):
            table = to_device(_table([_nobodys()], count, width), decoder.device)
            try:
                replay = recording.record(partial(self._compute, table))
            except RuntimeError as error:  # of memory, too
                warnings.warn(f"decode steps are launched one by one: {error}", stacklevel=2)
                return
            self._graphs[count] = _Graph(table, replay)

    def forward(
        self, chunks: list[Chunk], token_ids: torch.Tensor | None = None
    ) -> torch.Tensor | None:
        """Compute chunks of one token each, and write their keys and values.

        Args:
            chunks: in any order.
            token_ids: `[len(chunks)]` int64 on the device, if only that has them.

        Returns:
            Logits `[len(chunks), vocab_size]`, good until the next call; `None` if nothing was
            computed, because no graph is for so many.
        """
        count = _power_of_two(len(chunks))
        graph = self._graphs.get(count)
        if graph is None:
            return None
        width = max(len(chunk.seq.block_ids) for chunk in chunks)
        table = to_device(_table(chunks, count, width), self._decoder.device)
        graph.table[:, : table.shape[1]].copy_(table)
        if token_ids is not None:
            graph.table[: len(chunks), _TOKEN].copy_(token_ids)
            graph.table[len(chunks) :, _TOKEN].copy_(token_ids[0])
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
        expected = self._compute(to_device(_table(chunks, 2, 2), self._decoder.device))
        tolerance = 0.02 * float(expected.nan_to_num().abs().max())
        return torch.allclose(replayed, expected, rtol=0, atol=tolerance, equal_nan=True)

    def _compute(self, table: torch.Tensor) -> torch.Tensor:
        """Logits `[count, vocab_size]` of a table's sequences; every shape follows from its own."""
        positions = table[:, _POSITION].contiguous()
        attention = self._lay_out(self._cache, positions, table[:, _BLOCKS:])
        rows = torch.arange(len(table), device=table.device)
        return self._decoder.forward(table[:, _TOKEN].long(), positions.long(), rows, attention)


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
def work(decoder: Decoder, block_size: int, record: Record, lay_out: LayOutDecodes) -> bool:
    """Whether a step of this decoder can be recorded, and is right when it is replayed."""
    cache = PagedCache(decoder.shapes, 2, block_size, decoder.dtype, decoder.device)
    few = Recording(record, lay_out, max_num_seqs=2, max_model_len=block_size + 1)
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
    """`[count, 4 + width]` int32; rows that are left over are the first one again."""
    table = np.zeros((count, _BLOCKS + width), np.int32)
    for row, chunk in zip(table, chunks, strict=False):
        blocks = chunk.seq.block_ids
        row[_TOKEN] = (chunk.token_ids or _UNKNOWN)[0]
        row[_POSITION] = chunk.start
        row[_BLOCKS : _BLOCKS + len(blocks)] = blocks
    table[len(chunks) :] = table[0]
    return torch.from_numpy(table)
