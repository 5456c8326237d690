"""How the helper's caches are laid out: `csrc/float_attention.h`, `csrc/pair_cache.h`."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch

from streamwell.engine.native import BLOCK_SIZE
from streamwell.engine.native.memory import mapped

#: Keys and values of one layer: of each head of each block its keys, then its values.
LayerCache = np.ndarray[Any, Any]


class CacheShape:
    """The cache of one layer: pairs of bfloat16 where the helper multiplies them, else floats."""

    def __init__(
        self, library: ctypes.CDLL, dtype: torch.dtype, num_heads: int, head_dim: int
    ) -> None:
        """`num_heads` are those of keys and values, `dtype` is what layers multiply in."""
        pair_key_dim = library.sw_pair_key_dim(head_dim) if dtype is torch.bfloat16 else 0
        self.has_pairs = pair_key_dim > 0
        #: Whether they are multiplied as they are, or widened to floats.
        self.has_fast_pairs = bool(library.sw_has_fast_pairs())
        self._stored = np.dtype(np.uint16 if self.has_pairs else np.float32)
        #: Numbers per position of a head, of its keys and values: those of keys may be padded.
        self._width = (pair_key_dim or head_dim) + head_dim
        self._num_heads = num_heads

    @property
    def bytes_per_token(self) -> int:
        """What the layer takes per token."""
        return self._num_heads * self._width * self._stored.itemsize

    def allocate(self, num_blocks: int) -> LayerCache:
        """So many blocks, and block 0, which belongs to nobody: `[blocks, heads, numbers]`.

        Memory is used as blocks are, a page of 2 MiB at a time. They begin with a line of the
        processor's cache: else everything that is read of them would lie in two.
        """
        memory = mapped((num_blocks + 1) * BLOCK_SIZE * self.bytes_per_token)
        return np.frombuffer(memory, self._stored).reshape(num_blocks + 1, self._num_heads, -1)
