"""The native helper's linear layers: right in every instruction set, each row for itself."""

from __future__ import annotations

import ctypes
import functools
from array import array

import pytest
import torch

from streamwell.engine.native import library
from streamwell.engine.native.linear import PackedLinear, interleave, storage_kind
from streamwell.engine.native.structures import Activation, Epilogue, Kind
from streamwell.engine.operations import IN_PYTORCH, SWIGLU_LIMIT
from streamwell.engine.quantization import rounded

pytestmark = pytest.mark.slow

#: Weights as they are saved, and what they are rounded to.
STORED = [
    pytest.param(torch.float32, "none", id="float32"),
    pytest.param(torch.bfloat16, "none", id="bfloat16"),
    pytest.param(torch.float16, "none", id="float16"),
    pytest.param(torch.float32, "int8", id="int8"),
    pytest.param(torch.bfloat16, "int4", id="int4"),
]
ACTIVATIONS = {
    Activation.NONE: lambda x: x,
    Activation.SILU: torch.nn.functional.silu,
    Activation.GELU_TANH: functools.partial(torch.nn.functional.gelu, approximate="tanh"),
    Activation.GELU: torch.nn.functional.gelu,
    Activation.RELU: torch.nn.functional.relu,
}
#: Around the sizes of panels, tiles and blocks, and stretches of several groups of panels: nothing
#: divides evenly.
SIZES = [(1, 32), (33, 96), (150, 704), (64, 2112), (1050, 96)]
ROWS = [1, 2, 3, 13, 14, 15, 16, 17, 31, 32, 33, 48, 62, 79, 97, 300]


@pytest.fixture(params=library.instruction_sets())
def helper(request: pytest.FixtureRequest) -> ctypes.CDLL:
    loaded = library.load(request.param)
    assert loaded is not None, "the helper is not compiled"
    return loaded


@pytest.fixture(params=["amx", "avx512bf16"])
def bfloat16_helper(request: pytest.FixtureRequest) -> ctypes.CDLL:
    """The variants that multiply bfloat16, where the processor has them."""
    loaded = library.load(request.param) if request.param in library.instruction_sets() else None
    if loaded is None:
        pytest.skip(f"this processor has no {request.param}")
    return loaded


def make_layer(
    n: int, k: int, dtype: torch.dtype, *, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(n, k, generator=generator) / k**0.5
    return weight.to(dtype), torch.randn(n, generator=generator)


def activations(rows: int, k: int) -> torch.Tensor:
    return torch.randn(rows, k, generator=torch.Generator().manual_seed(7))


def as_multiplied(x: torch.Tensor, quantization: str) -> torch.Tensor:
    """The activations as the small integers that the helper makes of them say."""
    if quantization == "none":
        return x
    shape = (len(x), -1, 32) if quantization == "int4" else (len(x), 1, x.shape[1])
    groups = x.view(shape)
    scale = groups.abs().amax(-1, keepdim=True) / 127
    return (torch.round(groups / scale) * scale).view(x.shape)


def test_weights_larger_than_a_huge_page_are_all_there(helper: ctypes.CDLL) -> None:
    """Three pages of 2 MiB and a bit more, which the system gives from elsewhere."""
    weight, bias = make_layer(1700, 1000, torch.float32)
    x = activations(3, 1000)

    y = PackedLinear(helper, weight, bias, Kind.FLOAT32)(x)

    torch.testing.assert_close(y, x @ weight.T + bias, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("dtype", "quantization"), STORED)
def test_no_rows_have_no_results(
    helper: ctypes.CDLL, dtype: torch.dtype, quantization: str
) -> None:
    """Code of Transformers calls layers with what it has chosen, which may be nothing."""
    weight, bias = make_layer(33, 96, dtype)
    for multiplied in (torch.float32, torch.bfloat16)[: 1 + helper.sw_has_bfloat16()]:
        kind = storage_kind(weight, quantization, multiplied)

        assert PackedLinear(helper, weight, bias, kind)(activations(0, 96)).shape == (0, 33)


@pytest.mark.parametrize(("dtype", "quantization"), STORED)
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_a_linear_layer_is_that_of_pytorch(
    helper: ctypes.CDLL, dtype: torch.dtype, quantization: str, n: int, k: int
) -> None:
    """Every storage, on sizes that fill no panel, with a bias."""
    weight, bias = make_layer(n, k, dtype)
    linear = PackedLinear(helper, weight, bias, storage_kind(weight, quantization))
    x = activations(300, k)

    expected = as_multiplied(x, quantization) @ rounded(weight.float(), quantization).T + bias

    # a rounding that falls the other way moves a product by one step of its scale
    atol = 1e-5 if quantization == "none" else 2e-2
    torch.testing.assert_close(linear(x), expected, rtol=1e-5, atol=atol)


@pytest.mark.parametrize(("dtype", "quantization"), STORED)
def test_a_row_does_not_depend_on_its_neighbours(
    helper: ctypes.CDLL, dtype: torch.dtype, quantization: str
) -> None:
    """Alone or among 299 others, at any place, a row gives the same bits."""
    weight, bias = make_layer(150, 2112, dtype)
    linear = PackedLinear(helper, weight, bias, storage_kind(weight, quantization))
    x = activations(300, 2112)
    alone = torch.cat([linear(row[None]) for row in x])

    for rows in ROWS:
        assert torch.equal(alone[-rows:], linear(x[-rows:]))


@pytest.mark.parametrize(("dtype", "quantization"), STORED)
def test_instruction_sets_agree(dtype: torch.dtype, quantization: str) -> None:
    """A linear layer gives the same bits on every processor."""
    weight, bias = make_layer(150, 704, dtype)
    x = activations(20, 704)
    results = []
    for name in library.instruction_sets():
        loaded = library.load(name)
        assert loaded is not None
        results.append(PackedLinear(loaded, weight, bias, storage_kind(weight, quantization))(x))

    assert results
    assert all(torch.equal(results[0], result) for result in results)


@pytest.mark.parametrize(("n", "k"), [*SIZES, (40, 7)])
def test_pairs_of_bfloat16_are_multiplied_as_they_are(
    bfloat16_helper: ctypes.CDLL, n: int, k: int
) -> None:
    """Weights and activations in bfloat16, sums in float32, on sizes that fill no tile."""
    weight, bias = make_layer(n, k, torch.float32)
    linear = PackedLinear(bfloat16_helper, weight, bias, Kind.BFLOAT16_PAIRS)
    x = activations(300, k)

    expected = x.bfloat16().float() @ weight.bfloat16().float().T + bias

    torch.testing.assert_close(linear(x), expected, rtol=1e-4, atol=1e-4)


def test_bfloat16_is_widened_where_that_is_faster(helper: ctypes.CDLL) -> None:
    """Weights are rounded to bfloat16, whatever they were; activations are not."""
    weight, bias = make_layer(70, 96, torch.float32)
    kind = storage_kind(weight, "none", torch.bfloat16, fast_pairs=False)
    linear = PackedLinear(helper, weight, bias, kind)
    x = activations(20, 96)

    expected = x @ weight.bfloat16().float().T + bias

    assert kind is Kind.BFLOAT16
    torch.testing.assert_close(linear(x), expected, rtol=1e-5, atol=1e-5)


def test_a_row_in_bfloat16_does_not_depend_on_its_neighbours(bfloat16_helper: ctypes.CDLL) -> None:
    """Alone or among 299 others, at any place, a row gives the same bits."""
    weight, bias = make_layer(150, 2112, torch.bfloat16)
    linear = PackedLinear(bfloat16_helper, weight, bias, Kind.BFLOAT16_PAIRS)
    x = activations(300, 2112)
    alone = torch.cat([linear(row[None]) for row in x])

    for rows in ROWS:
        assert torch.equal(alone[-rows:], linear(x[-rows:]))


def test_what_is_not_a_number_stays_so_in_bfloat16(bfloat16_helper: ctypes.CDLL) -> None:
    """A poisoned row is poisoned, and no other."""
    weight, _ = make_layer(48, 70, torch.bfloat16)
    linear = PackedLinear(bfloat16_helper, weight, None, Kind.BFLOAT16_PAIRS)
    x = activations(20, 70)
    x[3, 69] = torch.nan

    finite = linear(x).isfinite().all(1)

    assert [row for row in range(20) if not finite[row]] == [3]


@pytest.mark.parametrize("activation", Activation)
def test_the_gated_epilogue_is_that_of_pytorch(helper: ctypes.CDLL, activation: Activation) -> None:
    """Gate and up in one layer: an activation of one times the other, with biases."""
    (gate, gate_bias), (up, up_bias) = (
        make_layer(48, 64, torch.float32, seed=seed) for seed in (1, 2)
    )
    bias = interleave([gate_bias[:, None], up_bias[:, None]])[:, 0]
    linear = PackedLinear(helper, interleave([gate, up]), bias, Kind.FLOAT32)
    x = activations(5, 64) * 10

    gates, ups = x @ gate.T + gate_bias, x @ up.T + up_bias
    if activation == Activation.CLAMPED_SWIGLU:
        assert min(gates.max(), ups.max(), -ups.min()) > SWIGLU_LIMIT
        expected = IN_PYTORCH.gate("clamped_swiglu")(torch.cat((gates, ups), -1))
    else:
        expected = ACTIVATIONS[activation](gates) * ups

    torch.testing.assert_close(linear(x, Epilogue.GATE, activation), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_is_that_of_pytorch(helper: ctypes.CDLL, activation: Activation) -> None:
    """From far below zero to far above, as near as floats are; what is no number stays so."""
    linear = PackedLinear(helper, torch.eye(33), None, Kind.FLOAT32)
    x = torch.cat((torch.linspace(-12, 12, 33 * 99), torch.tensor([torch.nan] * 33))).view(-1, 33)
    expected = ACTIVATIONS[activation](x.double()).float()  # PyTorch's GELU in float is rougher
    expected[-1] = torch.nan

    y = linear(x, activation=activation)

    torch.testing.assert_close(y, expected, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize(("dtype", "quantization"), STORED)
def test_rows_of_the_weights_come_back(
    helper: ctypes.CDLL, dtype: torch.dtype, quantization: str
) -> None:
    """A tied head serves as the embedding too; at four bits it has eight."""
    weight, _ = make_layer(150, 704, dtype)
    quantization = "int8" if quantization == "int4" else quantization
    linear = PackedLinear(helper, weight, None, storage_kind(weight, quantization))
    ids = torch.tensor([149, 0, 16, 31, 32])

    expected = rounded(weight.float(), quantization)[ids]

    rows = torch.empty_like(expected)
    linear.read_rows(array("q", ids.tolist()), rows)
    torch.testing.assert_close(rows, expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("quantization", ["int8", "int4"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_poisoned_row_stays_poisoned(helper: ctypes.CDLL, quantization: str, bad: float) -> None:
    """Rounding to integers hides no value that is not finite, and touches no other row."""
    weight, _ = make_layer(33, 96, torch.float32)
    linear = PackedLinear(helper, weight, None, storage_kind(weight, quantization))
    x = activations(3, 96)
    sound = linear(x)
    x[1, 40] = bad

    y = linear(x)

    assert not y[1].isfinite().any()
    assert torch.equal(y[[0, 2]], sound[[0, 2]])


@pytest.mark.parametrize("quantization", ["none", "int8", "int4"])
def test_poisoned_weights_stay_poisoned(helper: ctypes.CDLL, quantization: str) -> None:
    """A weight that is not a number makes its output so, whatever it is rounded to."""
    weight, _ = make_layer(33, 96, torch.float32)
    weight[7, 40] = float("nan")
    linear = PackedLinear(helper, weight, None, storage_kind(weight, quantization))

    y = linear(activations(3, 96))

    assert not y[:, 7].isfinite().any()
    assert y[:, [*range(7), *range(8, 33)]].isfinite().all()
