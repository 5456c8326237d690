"""Weights that a GGUF file has rounded stay as they are in the native helper."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from streamwell.engine.native import library
from streamwell.engine.native.linear import PackedLinear, storage_kind
from streamwell.engine.native.packing import Packer
from streamwell.engine.native.structures import Kind
from streamwell.engine.saved_weights import SavedRows, SavedWeights
from streamwell.models.gguf_header import KEPT, TYPES

pytestmark = pytest.mark.slow

#: Where a block has its scale, and its minimum or what those are multiples of, in float16.
HALVES = {
    "Q4_0": slice(0, 2),
    "Q4_1": slice(0, 4),
    "Q8_0": slice(0, 2),
    "Q4_K": slice(0, 4),
    "Q5_K": slice(0, 4),
    "Q6_K": slice(208, 210),
}


@pytest.fixture(params=library.instruction_sets())
def helper(request: pytest.FixtureRequest) -> ctypes.CDLL:
    loaded = library.load(request.param)
    assert loaded is not None, "the helper is not compiled"
    return loaded


def make_rows(kind: str, n: int, k: int) -> SavedRows:
    """Blocks of any bits, but for their scales, which are of the size of real ones."""
    generator = np.random.default_rng(0)
    _, block_size, block_bytes = TYPES[KEPT[kind].number]
    blocks = generator.integers(0, 256, (n, k // block_size, block_bytes), dtype=np.uint8)
    if kind == "MXFP4":
        blocks[..., 0] = generator.integers(110, 130, blocks.shape[:2])
        return SavedRows(kind, torch.from_numpy(blocks.reshape(n, -1)))
    halves = blocks[..., HALVES[kind]]
    scales = generator.normal(0, 0.01, (*halves.shape[:2], halves.shape[2] // 2))
    halves[...] = scales.astype(np.float16).view(np.uint8)
    return SavedRows(kind, torch.from_numpy(blocks.reshape(n, -1)))


def floats(rows: SavedRows) -> torch.Tensor:
    """What llama.cpp's own package makes of them."""
    return torch.from_numpy(dequantize(rows.blocks.numpy(), GGMLQuantizationType[rows.kind]))


def pack(helper: ctypes.CDLL, rows: SavedRows, bias: torch.Tensor | None = None) -> PackedLinear:
    return PackedLinear(helper, rows, bias, storage_kind(rows, "none"))


@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize(("n", "k"), [(1, 256), (33, 512), (150, 2304)])
def test_every_weight_is_that_of_the_file(helper: ctypes.CDLL, kind: str, n: int, k: int) -> None:
    """Multiplied one by one, by inputs that are rounded to themselves; and read row by row."""
    rows = make_rows(kind, n, k)
    weights, bias = floats(rows), torch.randn(n, generator=torch.Generator().manual_seed(0))
    linear, order = pack(helper, rows, bias), torch.arange(n).flip(0)
    unpacked = torch.empty(n, k)

    multiplied = linear(127 * torch.eye(k)) - bias
    linear.read_rows(array("q", order.tolist()), unpacked)

    assert (n, k) == rows.shape
    atol = 1e-5 * weights.abs().max()
    torch.testing.assert_close(multiplied.T / 127, weights, rtol=0, atol=atol.item())
    torch.testing.assert_close(unpacked[order], weights, rtol=0, atol=atol.item())


@pytest.mark.parametrize("kind", KEPT)
def test_a_row_does_not_depend_on_its_neighbours(helper: ctypes.CDLL, kind: str) -> None:
    """Alone or among 299 others, at any place, a row gives the same bits."""
    linear = pack(helper, make_rows(kind, 150, 2304))
    x = torch.randn(300, 2304, generator=torch.Generator().manual_seed(7))
    alone = torch.cat([linear(row[None]) for row in x])

    for rows in (1, 2, 3, 8, 9, 14, 15, 33, 300):
        assert torch.equal(alone[-rows:], linear(x[-rows:]))


@pytest.mark.parametrize("kind", KEPT)
def test_instruction_sets_agree(kind: str) -> None:
    """A layer gives the same bits on every processor."""
    rows = make_rows(kind, 150, 768)
    x = torch.randn(20, 768, generator=torch.Generator().manual_seed(7))
    helpers = [library.load(name) for name in library.instruction_sets()]
    results = [pack(helper, rows)(x) for helper in helpers if helper is not None]

    assert results
    assert all(torch.equal(results[0], result) for result in results)


class FakeWeights(SavedWeights):
    """Weights of several types by name; floats where there is none."""

    def __init__(self, kinds: Mapping[str, str | None], outputs: int = 32) -> None:
        self._kinds, self._outputs = kinds, outputs
        self.outline = {name: torch.empty(outputs, 256, device="meta") for name in kinds}

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._kinds:
            raise KeyError(name)
        return torch.ones(self._outputs, 256)

    def saved_kind(self, name: str) -> str | None:
        return self._kinds[name]

    def saved_rows(self, name: str) -> SavedRows:
        kind = self._kinds[name]
        assert kind is not None
        return make_rows(kind, self._outputs, 256)


@pytest.mark.parametrize(
    ("kinds", "stored"),
    [
        (("Q4_K", "Q4_K"), Kind.INT4_K),
        (("Q5_K", "Q5_K"), Kind.INT5_K),
        (("Q6_K", "Q6_K"), Kind.INT6_K),
        (("Q4_1", "Q4_1"), Kind.INT4_MINIMUM),
        (("Q4_0", "Q4_0"), Kind.INT4),
        (("MXFP4", "MXFP4"), Kind.MXFP4),
        (("Q8_0", "Q8_0"), Kind.INT8_GROUPS),
        (("Q4_K", "Q4_0"), Kind.INT8_GROUPS),
        (("Q4_K", "Q6_K"), Kind.INT8_GROUPS),
        (("Q3_K", "Q3_K"), Kind.INT8_GROUPS),
        (("Q8_0", None), Kind.INT8_GROUPS),
        ((None, None), Kind.FLOAT32),
    ],
)
def test_a_layer_keeps_what_all_of_its_parts_have(
    helper: ctypes.CDLL, kinds: tuple[str | None, str | None], stored: Kind
) -> None:
    """A gate and what it gates; what is not kept, or differs, becomes eight bits."""
    weights = FakeWeights({"a.weight": kinds[0], "b.weight": kinds[1]})
    packer = Packer(helper, weights, torch.float32, "none", rounding=weights)

    assert stored == packer.gated("a", "b").struct.kind
    if kinds[0] == kinds[1]:
        assert stored == packer.linear("a", "b").struct.kind
    head = {None: Kind.FLOAT32, "Q5_K": Kind.INT5_K, "Q6_K": Kind.INT6_K}
    assert head.get(kinds[0], Kind.INT8_GROUPS) == packer.head("a").struct.kind
    table = packer.table("a")
    assert isinstance(table, PackedLinear) == (kinds[0] is not None)
    assert Kind.FLOAT32 == packer.linear("a", quantization="none").struct.kind


@pytest.mark.parametrize(
    "kinds",
    [
        ("Q4_K", "Q4_K", "Q6_K"),
        ("Q5_K", "Q3_K", "Q3_K"),
        ("Q8_0", None, "Q4_0"),
        ("Q4_K", "Q4_K", "Q4_K"),
    ],
)
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_layers_of_one_input_keep_a_type_each(
    helper: ctypes.CDLL, kinds: tuple[str | None, ...], rows: int
) -> None:
    """Queries, keys and values as one give the bits that they give alone."""
    names = ("q", "k", "v")
    weights = FakeWeights({f"{name}.weight": kind for name, kind in zip(names, kinds, strict=True)})
    packer = Packer(helper, weights, torch.float32, "none", rounding=weights)
    x = torch.randn(rows, 256, generator=torch.Generator().manual_seed(7))

    together = packer.linear(*names)(x)

    assert torch.equal(torch.cat([packer.linear(name)(x) for name in names], 1), together)


def test_a_panel_of_several_types_becomes_eight_bits(helper: ctypes.CDLL) -> None:
    """Sixteen outputs do not end with one."""
    weights = FakeWeights({"q.weight": "Q4_K", "k.weight": "Q6_K"}, outputs=16)
    packer = Packer(helper, weights, torch.float32, "none", rounding=weights)

    assert Kind.INT8_GROUPS == packer.linear("q", "k").struct.kind
