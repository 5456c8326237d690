"""Embeddings of tokens and positions: the input of the first block."""

from __future__ import annotations

from array import array

import torch

from streamwell.engine.native.linear import PackedLinear


class Embedding:
    """Token embeddings times a factor, plus those of positions if there are any."""

    def __init__(
        self,
        table: torch.Tensor | PackedLinear,
        *,
        factor: float = 1.0,
        positions: torch.Tensor | None = None,
    ) -> None:
        """`table` and `positions` are `[count, hidden_size]`; a packed table is a tied head."""
        self._table = table
        self._factor = factor
        self._positions = None if positions is None else positions.float()

    def __call__(self, token_ids: array[int], positions: array[int], out: torch.Tensor) -> None:
        """Write floats to the first rows of `out`, `[len(token_ids) or more, hidden_size]`.

        `token_ids` and `positions` are int64.
        """
        count = len(token_ids)
        if isinstance(self._table, PackedLinear):
            self._table.read_rows(token_ids, out)
        else:
            out[:count].copy_(self._table[_tensor(token_ids)])
        if self._factor != 1:
            out[:count].mul_(self._factor)
        if self._positions is not None:
            out[:count].add_(self._positions[_tensor(positions)])


def _tensor(ids: array[int]) -> torch.Tensor:
    return torch.frombuffer(ids, dtype=torch.int64)
