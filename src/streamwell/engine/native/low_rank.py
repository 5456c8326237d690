"""Adapters as the native helper adds them, in the layout of `csrc/low_rank.h`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch.nn import functional

from streamwell.engine.lora.folder import Pairs
from streamwell.engine.lora.layers import Adaptable
from streamwell.engine.lora.table import AdapterTable
from streamwell.engine.native.batch import Integers, integers
from streamwell.engine.native.structures import LayerAdapterStruct, LowRankStruct
from streamwell.engine.sequence import Chunk

#: Outputs that lie side by side: half a panel.
_LANES = 16
#: Of layers that are computed as one: queries, keys and values.
_MOST_PARTS = 3


class NativeAdapter:
    """One adapter, and the structures that point to it."""

    def __init__(self, layers: Sequence[Adaptable], pairs: Pairs, *, is_gated: bool) -> None:
        """`is_gated` says whether a gate's outputs lie between those that it multiplies."""
        self._kept: list[torch.Tensor] = []
        self.structs = (LayerAdapterStruct * (1 + layers[-1].block))()
        for layer in layers:
            are_in_turn = is_gated and layer.place == "up"
            struct = self._low_rank(layer, pairs, are_in_turn=are_in_turn)
            setattr(self.structs[layer.block], layer.place, struct)

    def _low_rank(self, layer: Adaptable, pairs: Pairs, *, are_in_turn: bool) -> LowRankStruct:
        """Ranks are made equal with zeros, so that every part has as many values in between."""
        adapted = [name for name in layer.parts if name in pairs]
        if not adapted:
            return LowRankStruct()
        rank = max(len(pairs[name][0]) for name in adapted)
        downs, ups = [], []
        for name in adapted:
            down, up = pairs[name]
            downs.append(functional.pad(down, (0, 0, 0, rank - len(down))))
            ups.append(_side_by_side(up, rank))
        halves = _halves(layer, adapted, rank)
        if are_in_turn:  # the gate's outputs and those that it multiplies
            halves = torch.stack(halves.chunk(2), 1).flatten(0, 1)
        # a panel has two halves, though there may be no outputs for the second
        halves = functional.pad(halves, (0, 0, 0, len(halves) % 2), value=-1)
        return LowRankStruct(
            *(self._keep(each) for each in (torch.cat(downs), torch.cat(ups), halves)),
            rank=rank,
            between=rank * len(adapted),
        )

    def _keep(self, tensor: torch.Tensor) -> int:
        tensor = tensor.contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr()


def _side_by_side(up: torch.Tensor, rank: int) -> torch.Tensor:
    """`[n, some]` as `[blocks, rank, 16]`."""
    n, own_rank = up.shape
    padded = functional.pad(up, (0, rank - own_rank, 0, -n % _LANES))
    return padded.view(-1, _LANES, rank).transpose(1, 2)


def _halves(layer: Adaptable, adapted: list[str], rank: int) -> torch.Tensor:
    """`[halves, 2]` int32: of each sixteen outputs the block, and the first of its values."""
    places, block = [], 0
    for name, num_outputs in layer.parts.items():
        count = -(-num_outputs // _LANES)
        if name not in adapted:
            places.append(torch.full((count, 2), -1, dtype=torch.int32))
            continue
        blocks = torch.arange(block, block + count, dtype=torch.int32)
        first = torch.full_like(blocks, rank * adapted.index(name))
        places.append(torch.stack((blocks, first), 1))
        block += count
    return torch.cat(places)


def most_between(adapters: AdapterTable[NativeAdapter]) -> int:
    """Floats per row between the two matrices of an adapter, at most."""
    return _MOST_PARTS * adapters.max_lora_rank


def addresses_of(adapters: AdapterTable[NativeAdapter], chunks: list[Chunk]) -> Integers | None:
    """`[len(chunks)]`: where each sequence's adapter is, 0 for none; `None` if no one has any."""
    numbers = [chunk.seq.adapter for chunk in chunks]
    if not any(numbers):
        return None
    where = {number: ctypes.addressof(adapters[number].structs) for number in {*numbers} - {0}}
    return integers(where.get(number, 0) for number in numbers)
