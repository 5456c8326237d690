"""Coded weights: the bits that they were, in three quarters of the bytes."""

from __future__ import annotations

import ctypes
from array import array

import pytest
import torch

from streamwell.engine.native import library, linear
from streamwell.engine.native.linear import PackedLinear
from streamwell.engine.native.structures import Epilogue, Kind

pytestmark = pytest.mark.slow

#: Around the sizes of chunks, panels, pieces and blocks; rows of one leave the second cache.
SIZES = [(40, 98), (33, 703), (150, 704), (70, 4862), (1050, 96)]
#: Around those of tiles, and of as many tiles as decode a block in each of the ways there are.
ROWS = [1, 2, 3, 6, 7, 14, 15, 32, 33, 97, 129, 300]
KINDS = {Kind.BFLOAT16: Kind.CODED_BFLOAT16, Kind.BFLOAT16_PAIRS: Kind.CODED_PAIRS}
#: The instruction sets that multiply pairs.
WITH_PAIRS = ("amx", "avx512bf16")


@pytest.fixture(
    params=[
        pytest.param((name, kind), id=f"{name}-{kind.name.lower()}")
        for name in library.instruction_sets()
        for kind in KINDS
        if kind is Kind.BFLOAT16 or name in WITH_PAIRS
    ]
)
def variant(request: pytest.FixtureRequest) -> tuple[ctypes.CDLL, Kind]:
    """A helper that this processor runs, and a kind of weights that it has."""
    name, kind = request.param
    loaded = library.load(name)
    assert loaded is not None, "the helper is not compiled"
    return loaded, kind


@pytest.fixture
def helper(variant: tuple[ctypes.CDLL, Kind]) -> ctypes.CDLL:
    return variant[0]


@pytest.fixture
def kind(variant: tuple[ctypes.CDLL, Kind]) -> Kind:
    return variant[1]


def make_weights(n: int, k: int) -> torch.Tensor:
    """Of one size, but for one in five hundred: those are anything, zeros and infinities too."""
    generator = torch.Generator().manual_seed(n + k)
    weights = (torch.randn(n, k, generator=generator) / k**0.5).bfloat16()
    others = torch.randint(-(2**15), 2**15, (n, k), generator=generator).short()
    is_other = torch.rand(n, k, generator=generator) < 1 / 500
    return torch.where(is_other, others, weights.view(torch.int16)).view(torch.bfloat16)


def usable(weights: torch.Tensor) -> torch.Tensor:
    """The same with sizes that sums can have."""
    return torch.where(weights.abs() < 1e4, weights, 0)


def both(
    helper: ctypes.CDLL, weights: torch.Tensor, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> tuple[PackedLinear, PackedLinear]:
    """A layer coded, and as it is."""
    coded = PackedLinear(helper, weights, None, kind)
    with monkeypatch.context() as patch:
        patch.setattr(linear, "_WORTH_CODING", 0)
        plain = PackedLinear(helper, weights, None, kind)
    assert (coded.struct.kind, plain.struct.kind) == (KINDS[kind], kind)
    return coded, plain


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_the_results_are_those_of_the_weights_as_they_are(
    helper: ctypes.CDLL, kind: Kind, n: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, whatever the number of rows, with weights among them that have no code."""
    weights = usable(make_weights(n, k))
    coded, plain = both(helper, weights, kind, monkeypatch)
    x = torch.randn(max(ROWS), k, generator=torch.Generator().manual_seed(7))

    for rows in ROWS:
        assert torch.equal(coded(x[:rows]), plain(x[:rows]))


@pytest.mark.parametrize("rows", [2, 200])
def test_a_gate_s_results_are_those_too(
    helper: ctypes.CDLL, kind: Kind, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are written while the weights of the next block are decoded."""
    coded, plain = both(helper, usable(make_weights(320, 704)), kind, monkeypatch)
    x = torch.randn(rows, 704, generator=torch.Generator().manual_seed(7))

    assert torch.equal(coded(x, Epilogue.GATE), plain(x, Epilogue.GATE))


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_every_weight_comes_back(helper: ctypes.CDLL, kind: Kind, n: int, k: int) -> None:
    """Rows are embeddings of tied models; zeros keep their sign, what is no number stays so."""
    weights = make_weights(n, k)
    rows = torch.empty(n, k)

    packed = PackedLinear(helper, weights, None, kind)
    packed.read_rows(array("q", range(n)), rows)

    assert packed.struct.kind == KINDS[kind]
    is_number = ~weights.isnan()
    bits, expected = rows.view(torch.int32), weights.float().view(torch.int32)
    assert torch.equal(bits[is_number], expected[is_number])
    assert torch.equal(rows.isnan(), weights.isnan())


def test_a_coded_layer_takes_three_quarters(helper: ctypes.CDLL, kind: Kind) -> None:
    """And a hundredth for what has no code, and for its table."""
    weights = (torch.randn(256, 1024, generator=torch.Generator().manual_seed(0)) / 32).bfloat16()

    packed = PackedLinear(helper, weights, None, kind)

    plain_bytes = helper.sw_panel_bytes(kind, 1024)
    assert 0.75 <= packed.struct.panel_bytes / plain_bytes < 0.76


def test_weights_of_all_sizes_stay_as_they_are(helper: ctypes.CDLL, kind: Kind) -> None:
    """Where a code would be of no use, nothing is coded."""
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**15), 2**15, (64, 256), generator=generator).short()
    weights = bits.view(torch.bfloat16)
    rows = torch.empty(64, 256)

    packed = PackedLinear(helper, weights, None, kind)
    packed.read_rows(array("q", range(64)), rows)

    assert packed.struct.kind == kind
    assert torch.equal(rows.nan_to_num(0), weights.float().nan_to_num(0))


def test_a_layer_without_outputs_is_packed(helper: ctypes.CDLL, kind: Kind) -> None:
    """It has no panel, and so no list of exceptions that is the longest."""
    packed = PackedLinear(helper, torch.zeros(0, 64, dtype=torch.bfloat16), None, kind)

    assert packed(torch.ones(3, 64)).shape == (3, 0)
