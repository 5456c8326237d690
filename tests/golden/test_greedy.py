"""The engine's greedy tokens are those of Transformers' `generate`, alone and in any crowd.

A few families in several kinds of crowd; `test_zoo` has them all in the tightest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
from engine_rig import EngineRig, load_model, make_requests, reference_tokens
from tiny_models import folder_of

from streamwell.core.types import GenerateRequest
from streamwell.engine.loader import LoadedModel

pytestmark = pytest.mark.slow

#: Which of the three decoders know a family: the native one, the lean one, Transformers' own.
FAMILIES = {
    "qwen2-window": ("native", "torch", "transformers"),
    "mixtral": ("native", "torch"),
    "brooklet": ("native", "torch", "transformers"),
}


@dataclass(frozen=True, slots=True)
class Family:
    """A model folder, a workload, and what Transformers makes of it."""

    folder: Path
    requests: list[GenerateRequest]
    expected: dict[str, list[int]]


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Family]:
    """Families by name; the reference of each is computed once."""

    @functools.cache
    def of(name: str) -> Family:
        folder = folder_of(name, tmp_path_factory.mktemp(name))
        requests = make_requests(300)
        return Family(folder, requests, reference_tokens(folder, requests))

    return of


@pytest.fixture(
    scope="module", params=[(name, impl) for name, impls in FAMILIES.items() for impl in impls]
)
def case(
    request: pytest.FixtureRequest, references: Callable[[str], Family]
) -> tuple[Family, LoadedModel]:
    name, model_impl = request.param
    family = references(name)
    return family, load_model(family.folder, model_impl)


@pytest.fixture
def family(case: tuple[Family, LoadedModel]) -> Family:
    return case[0]


@pytest.fixture
def model(case: tuple[Family, LoadedModel]) -> LoadedModel:
    return case[1]


def test_a_request_alone_gives_the_reference(family: Family, model: LoadedModel) -> None:
    """One request at a time: the tokens are those of `generate`."""
    rig = EngineRig(model)

    tokens = {r.request_id: rig.serve([r])[r.request_id].token_ids for r in family.requests}

    assert family.expected == tokens


@pytest.mark.parametrize(
    ("pool_tokens", "budget", "preempts"),
    [
        pytest.param(512, 256, False, id="roomy"),
        pytest.param(512, 8, False, id="small chunks"),
        pytest.param(80, 256, True, id="small pool"),
    ],
)
def test_a_crowd_gives_the_reference(
    family: Family, model: LoadedModel, pool_tokens: int, budget: int, preempts: bool
) -> None:
    """Neighbours, chunked prefill, late arrivals and preemption change no token."""
    rig = EngineRig(model, pool_tokens=pool_tokens, budget=budget)

    outcomes = rig.serve(family.requests, arrivals=Random(1))

    assert family.expected == {name: outcome.token_ids for name, outcome in outcomes.items()}
    assert {None} == {outcome.error for outcome in outcomes.values()}
    assert preempts == (rig.scheduler.num_preemptions > 0)


def test_sampled_tokens_are_the_same_alone_and_in_a_crowd(
    family: Family, model: LoadedModel
) -> None:
    """With a temperature, too, a request's tokens are its own affair."""
    requests = [
        replace(
            r,
            sampling=replace(r.sampling, temperature=0.9, seed=seed, top_p=0.95, ignore_eos=True),
        )
        for seed, r in enumerate(family.requests[:8])
    ]
    alone = {r.request_id: EngineRig(model).serve([r])[r.request_id] for r in requests}
    rig = EngineRig(model, pool_tokens=80, budget=13)

    assert alone == rig.serve(requests, arrivals=Random(2))
    assert rig.scheduler.num_preemptions > 0
