"""Adapters as PyTorch adds them: one pair of matrices for layers that are computed as one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from streamwell.engine.linear import Adapted, Delta, Deltas
from streamwell.engine.lora.folder import Pairs
from streamwell.engine.lora.layers import Adaptable
from streamwell.engine.lora.table import AdapterTable
from streamwell.engine.sequence import Chunk
from streamwell.engine.transfer import to_device


def fuse(
    layers: Sequence[Adaptable], pairs: Pairs, dtype: torch.dtype, device: torch.device
) -> Deltas:
    """What an adapter adds to layers, by their names; those that it does not change are missing."""
    fused = ((layer, _fuse(layer, pairs)) for layer in layers if layer.parts.keys() & pairs.keys())
    return {
        layer.name: Delta(down.to(device, dtype), up.to(device, dtype))
        for layer, (down, up) in fused
    }


def _fuse(layer: Adaptable, pairs: Pairs) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs of each part depend on its own low-rank values only."""
    nothing = torch.empty(0, layer.in_features)
    downs = [pairs[name][0] if name in pairs else nothing for name in layer.parts]
    ups = [
        pairs[name][1] if name in pairs else torch.empty(num_outputs, 0)
        for name, num_outputs in layer.parts.items()
    ]
    up: torch.Tensor = torch.block_diag(*ups)  # type: ignore[no-untyped-call]
    return torch.cat(downs), up


def adapted_rows(
    adapters: AdapterTable[Deltas], chunks: list[Chunk], device: torch.device
) -> Adapted | None:
    """Which rows of chunks laid end to end have adapters; `None` if no row has one."""
    rows: dict[int, list[int]] = {}
    end = 0
    for chunk in chunks:
        start, end = end, end + chunk.num_tokens
        if chunk.seq.adapter:
            rows.setdefault(chunk.seq.adapter, []).extend(range(start, end))
    if not rows:
        return None

    def place(own: list[int]) -> torch.Tensor | None:
        if len(own) == end:
            return None
        return to_device(torch.tensor(own, dtype=torch.int64), device)

    return Adapted([(place(own), adapters[number]) for number, own in rows.items()])
