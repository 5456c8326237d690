"""The native helper's convolutions, delta rule and scan are those of Transformers' code."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch
from engine_rig import DEVICE
from transformers.models.granitemoehybrid import modeling_granitemoehybrid as mamba
from transformers.models.qwen3_5 import modeling_qwen3_5 as theirs

from streamwell.engine.native import library
from streamwell.engine.native.delta_rule import DeltaRule
from streamwell.engine.native.short_conv import ShortConv
from streamwell.engine.native.state_scan import StateScan

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(DEVICE != "cpu", reason="the helper computes on a CPU"),
]

#: Sequences, tokens, heads of keys and of values, and their sizes: around those of vectors.
SHAPES = [
    (1, 1, 1, 1, 16, 16),
    (2, 70, 2, 4, 24, 48),
    (3, 5, 2, 6, 128, 64),
    (1, 130, 4, 4, 128, 128),
    (2, 3, 1, 2, 7, 80),
]
Inputs = dict[str, torch.Tensor]


@pytest.fixture(params=library.instruction_sets())
def helper(request: pytest.FixtureRequest) -> ctypes.CDLL:
    loaded = library.load(request.param)
    if loaded is None:
        pytest.skip("it is not compiled here")
    return loaded


def delta_inputs(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Inputs:
    batch, tokens, key_heads, value_heads, key_dim, value_dim = shape
    torch.manual_seed(0)
    query, key = torch.randn(2, batch, tokens, key_heads, key_dim).to(dtype)
    return {
        "query": query,
        "key": key,
        "value": torch.randn(batch, tokens, value_heads, value_dim).to(dtype),
        "g": -2 * torch.rand(batch, tokens, value_heads),
        "beta": torch.rand(batch, tokens, value_heads),
    }


def rule_of(function: Any, inputs: Inputs, state: torch.Tensor) -> tuple[torch.Tensor, ...]:  # noqa: ANN401 - ours or theirs
    """What is read, and the state afterwards; the one that is given stays as it is."""
    options = {"output_final_state": True, "use_qk_l2norm_in_kernel": True}
    found: tuple[torch.Tensor, ...] = function(
        inputs["query"],
        inputs["key"],
        inputs["value"],
        g=inputs["g"],
        beta=inputs["beta"],
        initial_state=state.clone(),
        **options,
    )
    return found


def state_of(shape: tuple[int, ...]) -> torch.Tensor:
    batch, _, _, value_heads, key_dim, value_dim = shape
    return torch.randn(batch, value_heads, key_dim, value_dim)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_delta_rule_is_theirs(helper: ctypes.CDLL, shape: tuple[int, ...]) -> None:
    """Token by token, and as they do it in chunks; with a state before, and with none."""
    inputs, state = delta_inputs(shape), state_of(shape)
    ours = rule_of(DeltaRule(helper), inputs, state)

    for function in (theirs.torch_recurrent_gated_delta_rule, theirs.torch_chunk_gated_delta_rule):
        for own, other in zip(ours, rule_of(function, inputs, state), strict=True):
            torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)
    whole, none = DeltaRule(helper)(**inputs, use_qk_l2norm_in_kernel=True)
    from_zeros, _ = rule_of(DeltaRule(helper), inputs, torch.zeros_like(state))
    assert none is None
    assert torch.equal(whole, from_zeros)


@pytest.mark.parametrize("cut", [1, 3, 64])
def test_the_delta_rule_goes_on_where_it_was_cut(helper: ctypes.CDLL, cut: int) -> None:
    """To the last bit: the tokens of an answer do not depend on how a prompt is divided."""
    shape = (2, 70, 2, 4, 128, 128)
    inputs, state = delta_inputs(shape), state_of(shape)
    rule = DeltaRule(helper)
    whole, end = rule_of(rule, inputs, state)

    first, between = rule_of(rule, {name: x[:, :cut] for name, x in inputs.items()}, state)
    second, last = rule_of(rule, {name: x[:, cut:] for name, x in inputs.items()}, between)

    assert torch.equal(whole, torch.cat([first, second], 1))
    assert torch.equal(end, last)


def test_sequences_are_nothing_to_each_other(helper: ctypes.CDLL) -> None:
    """Each has the bits that it has alone."""
    shape = (3, 9, 2, 4, 32, 32)
    inputs, state = delta_inputs(shape, torch.bfloat16), state_of(shape)
    whole, end = rule_of(DeltaRule(helper), inputs, state)

    for i in range(3):
        one = {name: x[i : i + 1] for name, x in inputs.items()}
        alone, own_end = rule_of(DeltaRule(helper), one, state[i : i + 1])
        assert torch.equal(whole[i : i + 1], alone)
        assert torch.equal(end[i : i + 1], own_end)
    assert whole.dtype is torch.bfloat16


@pytest.mark.parametrize(
    "changes",
    [
        {"use_qk_l2norm_in_kernel": False},
        {"cu_seqlens": torch.tensor([0, 2])},
        {"value": torch.zeros(1, 2, 1, 8)},
        {"key": torch.zeros(1, 2, 2, 16), "query": torch.zeros(1, 2, 2, 16)},
        {"g": torch.zeros(1, 1, 1)},
        {"beta": torch.zeros(1, 2)},
        {"initial_state": torch.zeros(1, 1, 8, 16)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_another_delta_rule_is_refused(changes: dict[str, Any]) -> None:
    """Then theirs computes on."""
    helper = library.best()
    assert helper is not None
    arguments: dict[str, Any] = delta_inputs((1, 2, 1, 1, 16, 16))
    arguments |= {"use_qk_l2norm_in_kernel": True} | changes

    with pytest.raises(NotImplementedError):
        DeltaRule(helper)(**arguments)


def scan_inputs(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Inputs:
    """Sequences, tokens, heads, groups of them, and the sizes of a head's state."""
    batch, tokens, heads, groups, head_dim, state_dim = shape
    torch.manual_seed(0)
    return {
        "hidden_states": torch.randn(batch, tokens, heads, head_dim).to(dtype),
        "dt": torch.randn(batch, tokens, heads).to(dtype),
        "B": torch.randn(batch, tokens, groups, state_dim).to(dtype),
        "C": torch.randn(batch, tokens, groups, state_dim).to(dtype),
    }


def scan_of(function: Any, inputs: Inputs, heads: Inputs, state: torch.Tensor) -> Any:  # noqa: ANN401 - ours or theirs
    """What is read, and the state afterwards; the one that is given stays as it is."""
    return function(
        **inputs,
        **heads,
        chunk_size=32,
        dt_softplus=True,
        dt_limit=(0.0, 2.0),
        initial_states=state.clone(),
        return_final_states=True,
    )


def heads_of(shape: tuple[int, ...]) -> Inputs:
    """How fast the states of heads go, what is read past them, and the bias of steps."""
    count = shape[2]
    return {"A": -3 * torch.rand(count), "D": torch.randn(count), "dt_bias": torch.randn(count)}


def scan_state_of(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape[0], shape[2], *shape[4:])


SCANS = [(1, 1, 2, 1, 16, 16), (2, 70, 4, 2, 24, 48), (3, 5, 6, 2, 20, 80), (1, 40, 4, 1, 64, 128)]


@pytest.mark.parametrize("shape", SCANS, ids=str)
def test_the_scan_is_theirs(helper: ctypes.CDLL, shape: tuple[int, ...]) -> None:
    """As they do it in chunks, with a state before and with none."""
    inputs, heads, state = scan_inputs(shape), heads_of(shape), scan_state_of(shape)
    ours = scan_of(StateScan(helper).whole, inputs, heads, state)

    for own, other in zip(
        ours, scan_of(mamba.mamba2_chunk_scan, inputs, heads, state), strict=True
    ):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)
    options = {"dt_softplus": True, "dt_limit": (0.0, 2.0)}
    whole = StateScan(helper).whole(**inputs, **heads, **options)  # type: ignore[arg-type]
    from_zeros, _ = scan_of(StateScan(helper).whole, inputs, heads, torch.zeros_like(state))
    assert torch.equal(whole, from_zeros)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", SCANS, ids=str)
def test_a_step_of_the_scan_is_theirs(helper: ctypes.CDLL, shape: tuple[int, ...]) -> None:
    """Of one token, where each element of a head is told what its head is."""
    head_dim, state_dim = shape[-2:]
    inputs, of_heads, state = scan_inputs(shape), heads_of(shape), scan_state_of(shape)
    arguments = {name: x[:, 0] for name, x in inputs.items()}
    arguments["dt"] = arguments["dt"][..., None].expand(-1, -1, head_dim)
    arguments["A"] = of_heads["A"][:, None, None].expand(-1, head_dim, state_dim)
    for name in ("D", "dt_bias"):
        arguments[name] = of_heads[name][:, None].expand(-1, head_dim)
    ours, other = state.clone(), state.clone()

    for gate in (None, torch.randn(arguments["hidden_states"].shape)):
        options: dict[str, Any] = {"dt_softplus": True, "z": gate}
        found = StateScan(helper).step(ours, **arguments, **options)
        expected = mamba.mamba2_selective_state_update(other, **arguments, **options)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-4)
    assert not torch.equal(ours, state)


@pytest.mark.parametrize("cut", [1, 33])
def test_the_scan_goes_on_where_it_was_cut(helper: ctypes.CDLL, cut: int) -> None:
    """To the last bit, and each sequence has the bits that it has alone."""
    shape = (3, 70, 4, 2, 24, 48)
    inputs, heads, state = scan_inputs(shape, torch.bfloat16), heads_of(shape), scan_state_of(shape)
    scan = StateScan(helper).whole
    whole, end = scan_of(scan, inputs, heads, state)

    first, between = scan_of(scan, {k: x[:, :cut] for k, x in inputs.items()}, heads, state)
    second, last = scan_of(scan, {k: x[:, cut:] for k, x in inputs.items()}, heads, between)
    alone, own_end = scan_of(scan, {k: x[1:2] for k, x in inputs.items()}, heads, state[1:2])

    assert torch.equal(whole, torch.cat([first, second], 1))
    assert torch.equal(end, last)
    assert torch.equal(whole[1:2], alone)
    assert torch.equal(end[1:2], own_end)


@pytest.mark.parametrize(
    "changes",
    [
        {"z": torch.zeros(1, 2, 2, 16)},
        {"seq_idx": torch.zeros(1, 2)},
        {"B": torch.zeros(1, 2, 1, 8)},
        {"B": torch.zeros(1, 2, 3, 16)},
        {"C": torch.zeros(1, 2, 1, 32)},
        {"dt": torch.zeros(1, 2, 1)},
        {"D": torch.zeros(1)},
        {"initial_states": torch.zeros(1, 2, 16, 8)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_another_scan_is_refused(changes: dict[str, Any]) -> None:
    """Then theirs computes on."""
    helper = library.best()
    assert helper is not None
    shape = (1, 2, 2, 1, 16, 16)
    arguments: dict[str, Any] = {**scan_inputs(shape), **heads_of(shape), **changes}

    with pytest.raises(NotImplementedError):
        StateScan(helper).whole(**arguments)


@pytest.mark.parametrize("channels", [16, 40, 7])
@pytest.mark.parametrize("taps", [2, 4])
@pytest.mark.parametrize("activation", ["silu", None])
@pytest.mark.parametrize("has_bias", [True, False])
def test_the_convolution_is_theirs(
    helper: ctypes.CDLL, channels: int, taps: int, activation: str | None, *, has_bias: bool
) -> None:
    """Of a text as a whole, and of one token more after each."""
    torch.manual_seed(0)
    x, weight = torch.randn(2, channels, 9), torch.randn(channels, taps)
    bias = torch.randn(channels) if has_bias else None
    conv = ShortConv(helper)
    whole = conv.whole(x, weight, bias, activation)
    torch.testing.assert_close(whole, theirs.causal_conv1d_fn(x, weight, bias, activation))

    for length in (taps, taps + 1):  # of the state; some code keeps more than is looked at
        ours = torch.zeros(2, channels, length)
        other = ours.clone()
        for token in range(9):
            one = x[..., token : token + 1]
            step = conv.step(one, ours, weight, bias, activation)
            expected = theirs.causal_conv1d_update(one, other, weight, bias, activation)
            torch.testing.assert_close(step, expected)
            torch.testing.assert_close(step, whole[..., token : token + 1])
            assert torch.equal(ours, other)


def test_another_convolution_is_refused() -> None:
    """Then theirs computes on."""
    helper = library.best()
    assert helper is not None
    x, weight = torch.zeros(1, 16, 3), torch.zeros(16, 4)

    for options in ({"activation": "gelu"}, {"seq_idx": torch.zeros(1, 3)}):
        with pytest.raises(NotImplementedError):
            ShortConv(helper).whole(x, weight, None, **options)  # type: ignore[arg-type]
    for conv_weight, bias in ((weight[:8], None), (weight, torch.zeros(8))):
        with pytest.raises(NotImplementedError):
            ShortConv(helper).whole(x, conv_weight, bias)
    with pytest.raises(NotImplementedError):
        ShortConv(helper).step(x[..., :1], torch.zeros(1, 8, 4), weight)


def test_a_step_that_is_no_number_is_not_lost() -> None:
    """Nor is anything after it."""
    helper = library.best()
    assert helper is not None
    shape = (1, 4, 2, 1, 16, 16)
    inputs, heads = scan_inputs(shape), heads_of(shape)
    inputs["dt"][0, 2, 1] = float("nan")

    out, state = scan_of(StateScan(helper).whole, inputs, heads, scan_state_of(shape))

    assert out[0, 2:, 1].isnan().all()
    assert out[0, :2].isfinite().all()
    assert out[0, :, 0].isfinite().all()
    assert [False, True] == [bool(part.isnan().all()) for part in state[0]]
