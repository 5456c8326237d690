"""What an engine cannot do is refused when a request comes, with the field that asks for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from streamwell.core.engine_state import EngineInfo
from streamwell.core.errors import InvalidRequest
from streamwell.core.types import RunKind, RunRequest, RunSpec, SamplingOptions
from streamwell.service.acceptance import accept

INFO = EngineInfo(
    max_model_len=20,
    vocab_size=9,
    num_blocks=9,
    block_size=4,
    dtype="float32",
    device="cpu",
    max_temperature=2.0,
)


@dataclass
class Model:
    """As much of a served model as acceptance asks for, where prompts come as ids."""

    info: EngineInfo = INFO
    default_sampling: dict[str, float] = field(default_factory=dict)
    names: tuple[str, ...] = ("m",)

    async def wake(self) -> None:
        """It is awake."""

    def require(self) -> tuple[SimpleNamespace, EngineInfo]:
        return SimpleNamespace(has_chat_template=True), self.info


def _accepted(model: Model, temperature: float | None) -> RunSpec:
    options = SamplingOptions(temperature=temperature)
    request = RunRequest(kind=RunKind.COMPLETION, model="m", prompts=((1, 2),), options=options)
    return asyncio.run(accept(request, model))  # type: ignore[arg-type]


def test_temperatures_up_to_the_engines_highest_are_accepted() -> None:
    """The highest too; an engine without one takes any."""
    assert 2.0 == _accepted(Model(), 2.0).sampling.temperature
    unbounded = Model(replace(INFO, max_temperature=None))
    assert 99.0 == _accepted(unbounded, 99.0).sampling.temperature


@pytest.mark.parametrize("temperature", [2.01, 99.0, None])
def test_higher_temperatures_are_refused(temperature: float | None) -> None:
    """Whoever asks for it: the request, or the model's own defaults."""
    with pytest.raises(InvalidRequest) as refused:
        _accepted(Model(default_sampling={"temperature": 3.0}), temperature)

    assert "temperature" == refused.value.param
