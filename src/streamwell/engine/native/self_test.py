"""Whether the helper computes rightly on this machine."""

from __future__ import annotations

import ctypes

import torch

from streamwell.engine.native.linear import PackedLinear, storage_kind
from streamwell.engine.quantization import rounded
from streamwell.engine.saved_weights import SavedRows
from streamwell.models.gguf_header import KEPT, TYPES

#: A byte of blocks: two levels of nine, or -103. In the scales of Q4_K and Q5_K it says 25 in the
#: first four groups and 41 in the others; as fifth bits, that two of each four groups have them; as
#: what Q6_K adds, 16 and 32 by turns.
_BYTE = 0x99
_NINE, _SIGNED, _SCALES = 9, _BYTE - 256, (25, 41)
_SCALE, _MINIMUM = 1 / 64, 1 / 128
#: What the level of nine is in MXFP4, and a power of two as its scales have it.
_SMALL_FLOAT, _EXPONENT = -0.5, 121
#: Where a block has those two; what has no minimum begins with a scale alone, or ends with it.
#: MXFP4 has neither.
_HALVES = {"Q4_0": slice(0, 2), "Q8_0": slice(0, 2), "Q6_K": slice(208, 210), "MXFP4": slice(0, 0)}
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def passes_self_test(library: ctypes.CDLL) -> bool:
    """Compare a small layer of every storage with PyTorch's; some milliseconds."""
    return _multiplies_rightly(library) and all(_keeps(library, kind) for kind in KEPT)


def _multiplies_rightly(library: ctypes.CDLL) -> bool:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(48, 64, generator=generator) / 8
    x = torch.randn(40, 64, generator=generator)
    # too many sizes to be coded, as bfloat16 is else
    uneven = 8 * weight * torch.exp2(-(torch.arange(64.0) % 32))
    stored = [(weight.to(dtype), "none") for dtype in _DTYPES]
    stored.append((uneven.bfloat16(), "none"))
    stored += [(weight, "int8"), (weight, "int4"), (weight, "int8_groups")]
    cases = [(saved, quantization, torch.float32) for saved, quantization in stored]
    if library.sw_has_bfloat16():
        cases += [(each.bfloat16(), "none", torch.bfloat16) for each in (weight, uneven)]
    for saved, quantization, dtype in cases:
        linear = PackedLinear(library, saved, None, storage_kind(saved, quantization, dtype))
        expected = x @ rounded(saved.float(), quantization).T
        # activations are rounded too; what is wrong is wrong by the size of the results, one
        if not torch.allclose(linear(x), expected, rtol=0, atol=0.1):
            return False
    return True


def _keeps(library: ctypes.CDLL, kind: str) -> bool:
    """Whether rows of a GGUF file give what they say: all weights of a group are alike here."""
    _, block_size, block_bytes = TYPES[KEPT[kind].number]
    blocks = torch.full((48, 256 // block_size, block_bytes), _BYTE, dtype=torch.uint8)
    place = _HALVES.get(kind, slice(0, 4))
    halves = torch.tensor([_SCALE, _MINIMUM]).half().view(torch.uint8)
    blocks[..., place] = halves[: place.stop - place.start]
    if kind == "MXFP4":
        blocks[..., 0] = _EXPONENT
    rows = SavedRows(kind, blocks.view(48, -1))
    result = PackedLinear(library, rows, None, storage_kind(rows, "none"))(torch.ones(3, 256))
    expected = {
        "Q4_0": 256 * _SCALE * (_NINE - 8),
        "Q4_1": 256 * (_SCALE * _NINE + _MINIMUM),
        "Q8_0": 256 * _SCALE * _SIGNED,
        "Q4_K": 128 * sum(scale * (_SCALE * _NINE - _MINIMUM) for scale in _SCALES),
        "Q5_K": 128 * sum(scale * (_SCALE * (_NINE + 8) - _MINIMUM) for scale in _SCALES),
        "MXFP4": 256 * 2.0 ** (_EXPONENT - 127) * _SMALL_FLOAT,
        "Q6_K": 256 * _SCALE * _SIGNED * (_NINE + 24 - 32),
    }[kind]
    return torch.allclose(result, torch.tensor(expected), rtol=1e-3)
