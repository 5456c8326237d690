"""The experts of GPT-OSS as they are published: in MXFP4, all of a layer in one tensor.

MXFP4 (Open Compute Project 2023, "Microscaling Formats"): 32 numbers of four bits, with a power of
two as their scale. `..._proj_blocks` is `[experts, outputs, groups, 16]` uint8, of neighbours the
first in the low bits, `..._proj_scales` `[experts, outputs, groups]` uint8. Gates take turns with
what they multiply.
"""

from __future__ import annotations

from itertools import product

import torch

from streamwell.core.errors import LoadError
from streamwell.engine.saved_weights import SavedRows, SavedWeights
from streamwell.models.weights import MXFP4_BLOCKS

#: The matrices in a tensor, and their rows.
_MATRICES = {
    "gate_up_proj_blocks": (("gate_proj", slice(0, None, 2)), ("up_proj", slice(1, None, 2))),
    "down_proj_blocks": (("down_proj", slice(None)),),
}
_GROUP = 32
#: What levels stand for, times two to the power of a scale less 127.
_POSITIVE = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_VALUES = torch.tensor([*_POSITIVE, *(-value for value in _POSITIVE)])


class Mxfp4Weights(SavedWeights):
    """Saved weights in which each expert has matrices of its own, as in other mixtures."""

    def __init__(self, saved: SavedWeights, dtype: torch.dtype) -> None:
        """`dtype` is what experts become that are asked for as floats.

        Raises:
            LoadError: blocks and scales do not belong together.
        """
        self._saved, self._dtype = saved, dtype
        #: Of a matrix: the tensor that it is in, the number of its expert, and its rows.
        self._places: dict[str, tuple[str, int, slice]] = {}
        outline = dict(saved.outline)
        for name in [name for name in outline if MXFP4_BLOCKS.fullmatch(name)]:
            blocks, scales = outline.pop(name), outline.pop(_scales_of(name), None)
            if scales is None or blocks.dim() != 4 or (*scales.shape, _GROUP // 2) != blocks.shape:
                raise LoadError(f"the scales of {name} are missing, or of another shape than it")
            if {blocks.dtype, scales.dtype} != {torch.uint8}:
                raise LoadError(f"{name} or its scales are no bytes")
            matrices = self._matrices(name, blocks)
            if twice := sorted(outline.keys() & {*matrices, name.removesuffix("_blocks")}):
                raise LoadError(f"{name} is there a second time, as {twice[0]}")
            outline |= matrices
        if odd := next((n for n, t in outline.items() if not t.is_floating_point()), None):
            raise LoadError(f"{odd} is no tensor of floats")
        self.outline = outline

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._places:
            return self._saved[name]
        levels, scales = self._levels(name)
        values = torch.ldexp(_VALUES[levels.int()], scales.int()[..., None] - 127)
        return values.flatten(1).to(self._dtype)

    def saved_kind(self, name: str) -> str | None:
        return "MXFP4" if name in self._places else self._saved.saved_kind(name)

    def saved_rows(self, name: str) -> SavedRows:
        """In the blocks of a GGUF file: a scale, then the first half in low bits, and the other."""
        if name not in self._places:
            return self._saved.saved_rows(name)
        levels, scales = self._levels(name)
        low, high = levels.chunk(2, -1)
        return SavedRows("MXFP4", torch.cat((scales[..., None], low | high << 4), -1).flatten(1))

    def _matrices(self, name: str, blocks: torch.Tensor) -> dict[str, torch.Tensor]:
        """What each matrix is called, and what it is like."""
        prefix, _, leaf = name.rpartition(".")
        matrices = {}
        for index, (part, rows) in product(range(len(blocks)), _MATRICES[leaf]):
            own = f"{prefix}.{index}.{part}.weight"
            self._places[own] = name, index, rows
            num_rows, num_groups, _ = blocks[index, rows].shape
            matrices[own] = torch.empty(
                num_rows, num_groups * _GROUP, dtype=self._dtype, device="meta"
            )
        return matrices

    def _levels(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """`[rows, groups, 32]` levels in their order, and `[rows, groups]` scales, uint8."""
        source, index, rows = self._places[name]
        blocks = self._saved[source][index, rows]
        levels = torch.stack((blocks & 15, blocks >> 4), -1).flatten(-2)
        return levels, self._saved[_scales_of(source)][index, rows]


def _scales_of(blocks: str) -> str:
    return f"{blocks.removesuffix('_blocks')}_scales"
