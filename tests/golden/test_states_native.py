"""Layers of Transformers' code whose states the native helper computes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_rig import DEVICE, load_model
from tiny_models import build
from torch import nn

from streamwell.engine.native.delta_rule import DeltaRule
from streamwell.engine.native.state_scan import StateScan
from streamwell.engine.transformers_functions import replace_functions, restore_functions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(DEVICE != "cpu", reason="the helper computes on a CPU"),
]


def own_methods(module: nn.Module) -> set[str]:
    """Layers, but packed ones, whose method is not that of their class."""
    return {
        type(layer).__name__
        for layer in module.modules()
        if "forward" in vars(layer) and not isinstance(layer, nn.Linear | nn.Embedding)
    }


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("qwen3-5", "Qwen3_5GatedDeltaNet"),
        ("qwen3-next", "Qwen3NextGatedDeltaNet"),
        ("olmo-hybrid", "OlmoHybridGatedDeltaNet"),
        ("lfm2", "Lfm2ShortConv"),
        ("granite-4", "GraniteMoeHybridMambaLayer"),
    ],
)
def test_layers_with_states_use_them(tmp_path: Path, name: str, layer: str) -> None:
    """What golden tests of these families compare with Transformers' own answers is the helper."""
    decoder = load_model(build(name, tmp_path)).runner.model._decoder  # type: ignore[attr-defined]

    assert {layer} == own_methods(decoder._model)


def test_what_computes_something_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version of Transformers may mean another thing by these names: then its own are called."""
    call = DeltaRule.__call__

    def other(self: DeltaRule, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - passed on
        out, state = call(self, *args, **options)
        return 2 * out, state

    monkeypatch.setattr(DeltaRule, "__call__", other)

    model = load_model(build("qwen3-5", tmp_path))

    assert set() == own_methods(model.runner.model._decoder._model)  # type: ignore[attr-defined]
    assert ["PyTorch computes states"] == [text[:23] for text in model.info.warnings]


@pytest.mark.parametrize("error", [NotImplementedError, TypeError, None])
def test_what_computes_something_else_after_a_state_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception] | None
) -> None:
    """A whole text is not all: what follows one is tried out, too, and theirs takes over."""

    def other(_self: StateScan, _state: Any, x: torch.Tensor, *_: Any, **_options: Any) -> Any:  # noqa: ANN401 - passed on
        if error is not None:
            raise error
        return x

    monkeypatch.setattr(StateScan, "step", other)

    decoder = load_model(build("granite-4", tmp_path)).runner.model._decoder  # type: ignore[attr-defined]

    assert set() == own_methods(decoder._model)


class Layer(nn.Module):
    """Calls a function of this module."""

    def forward(self, x: torch.Tensor, *, factor: int = 2) -> torch.Tensor:
        return factor * change(x)


def change(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_functions_are_replaced_in_one_model_alone() -> None:
    """Others of its class compute as before, and so does this one afterwards."""
    one, other = Layer(), nn.Sequential(Layer(), nn.Identity())
    copied = copy.deepcopy(one)

    assert 1 == replace_functions(other, {"change": lambda x: -x, "unknown": change})
    assert 0 == replace_functions(one, {"unknown": change})

    x = torch.ones(1)
    assert [4, -2, 4] == [int(layer(x)) for layer in (one, other, copied)]
    restore_functions(other)
    assert 4 == int(other(x))
