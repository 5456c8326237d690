"""A decoder in PyTorch with its paged cache: on GPUs, and where the native helper does not fit."""

from __future__ import annotations

from collections.abc import Callable

import torch

from streamwell.engine.attention import Attention, PagedAttention, PagedCache
from streamwell.engine.batch_layout import build_layout
from streamwell.engine.decode_graphs import DecodeGraphs, Recording
from streamwell.engine.decoder import Decoder
from streamwell.engine.linear import Adapted, Deltas
from streamwell.engine.lora.fused import adapted_rows
from streamwell.engine.lora.table import AdapterTable
from streamwell.engine.sequence import Chunk
from streamwell.engine.transfer import to_device

#: Lays chunks that `order_chunks` has ordered out over a cache.
LayOut = Callable[[PagedCache, list[Chunk]], Attention]


def paged_attention(cache: PagedCache, chunks: list[Chunk]) -> Attention:
    """With PyTorch's own attention."""
    return PagedAttention(cache, build_layout(chunks, cache.block_size, cache.device))


class TorchModel:
    """A `model_runner.Model` over any decoder.

    Sequences with adapters are computed in one step with the others.
    """

    def __init__(
        self,
        decoder: Decoder,
        block_size: int,
        adapters: AdapterTable[Deltas] | None = None,
        lay_out: LayOut = paged_attention,
        recording: Recording | None = None,
    ) -> None:
        """With `recording`, steps of single tokens are replayed; see `decode_graphs`."""
        self._decoder = decoder
        self._block_size = block_size
        #: Those that sequences may have.
        self.adapters = adapters
        self._lay_out = lay_out
        self._recording = recording
        self._graphs: DecodeGraphs | None = None
        self.vocab_size = decoder.vocab_size
        self.dtype, self.device = decoder.dtype, decoder.device

    @property
    def bytes_per_token(self) -> int:
        return PagedCache.bytes_per_token(self._decoder.shapes, self.dtype)

    @property
    def runs_ahead(self) -> bool:
        # adapters are computed step by step: the host is busy as long as the device
        return self._graphs is not None and self.adapters is None

    def allocate(self, num_blocks: int) -> None:
        self._cache = PagedCache(
            self._decoder.shapes, num_blocks, self._block_size, self.dtype, self.device
        )
        if self._recording is not None:
            with torch.inference_mode():
                graphs = DecodeGraphs(self._decoder, self._cache, self._recording)
            self._graphs = graphs if len(graphs) else None

    def forward(self, chunks: list[Chunk], rows: list[int]) -> torch.Tensor:
        adapters = self.adapters
        adapted = None if adapters is None else adapted_rows(adapters, chunks, self.device)
        if self._graphs is not None and adapted is None and chunks[-1].num_tokens == 1:
            logits = self._graphs.forward(chunks)
            if logits is not None:
                return logits if len(rows) == len(chunks) else logits[self._ids(rows)]
        token_ids = [i for c in chunks for i in c.token_ids]
        return self._launch(chunks, self._ids(token_ids), rows, adapted)

    def forward_next(self, chunks: list[Chunk], token_ids: torch.Tensor) -> torch.Tensor:
        """See `model_runner.RunsAhead`."""
        if self._graphs is not None:
            logits = self._graphs.forward(chunks, token_ids)
            if logits is not None:
                return logits
        return self._launch(chunks, token_ids, list(range(len(chunks))))

    def _launch(
        self,
        chunks: list[Chunk],
        token_ids: torch.Tensor,
        rows: list[int],
        adapted: Adapted | None = None,
    ) -> torch.Tensor:
        """Kernel by kernel."""
        positions = [p for c in chunks for p in range(c.start, c.end)]
        return self._decoder.forward(
            token_ids,
            self._ids(positions),
            self._ids(rows),
            self._lay_out(self._cache, chunks),
            adapted,
        )

    def _ids(self, values: list[int]) -> torch.Tensor:
        return to_device(torch.tensor(values, dtype=torch.int64), self.device)
