"""Embeddings of tokens and positions: the input of the first block."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
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

    def __call__(
        self, token_ids: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], out: torch.Tensor
    ) -> None:
        """Write `[len(token_ids), hidden_size]` floats."""
        ids = torch.from_numpy(token_ids)
        if isinstance(self._table, PackedLinear):
            self._table.read_rows(ids, out)
        else:
            out.copy_(self._table[ids])
        if self._factor != 1:
            out *= self._factor
        if self._positions is not None:
            out += self._positions[torch.from_numpy(positions)]
