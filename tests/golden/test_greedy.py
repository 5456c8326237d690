"""The engine's greedy tokens are those of Transformers' `generate`, alone and in any crowd."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
import torch
from engine_rig import EngineRig, load_model, make_requests, reference_tokens
from tiny_models import folder_of

from streamwell.core.types import GenerateRequest
from streamwell.engine.loader import LoadedModel

pytestmark = pytest.mark.slow

FAMILIES = [
    "llama",
    "llama-biases-tied",
    "llama3-rope",
    "qwen2",
    "qwen2-window",
    "qwen3-tied",
    "mistral-window",
    "brooklet",
]


@dataclass(frozen=True, slots=True)
class Family:
    """A model folder, a workload, and what Transformers makes of it."""

    folder: Path
    requests: list[GenerateRequest]
    expected: dict[str, list[int]]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Loading sets the number of threads for the process; it is put back."""
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    folder = folder_of(request.param, tmp_path_factory.mktemp(request.param))
    requests = make_requests(300)
    return Family(folder, requests, reference_tokens(folder, requests))


@pytest.fixture(scope="module", params=["auto", "transformers"])
def model(family: Family, request: pytest.FixtureRequest) -> LoadedModel:
    return load_model(family.folder, request.param)


def test_a_request_alone_gives_the_reference(family: Family, model: LoadedModel) -> None:
    """One request at a time: the tokens are those of `generate`."""
    rig = EngineRig(model)

    tokens = {r.request_id: rig.serve([r])[r.request_id].token_ids for r in family.requests}

    assert family.expected == tokens


@pytest.mark.parametrize(
    ("num_blocks", "budget", "preempts"),
    [
        pytest.param(128, 256, False, id="roomy"),
        pytest.param(128, 8, False, id="small chunks"),
        pytest.param(20, 256, True, id="small pool"),
        pytest.param(17, 11, True, id="small chunks, small pool"),
    ],
)
def test_a_crowd_gives_the_reference(
    family: Family, model: LoadedModel, num_blocks: int, budget: int, preempts: bool
) -> None:
    """Neighbours, chunked prefill, late arrivals and preemption change no token."""
    rig = EngineRig(model, num_blocks=num_blocks, budget=budget)

    outcomes = rig.serve(family.requests, arrivals=Random(1))

    assert family.expected == {name: outcome.token_ids for name, outcome in outcomes.items()}
    assert {None} == {outcome.error for outcome in outcomes.values()}
    assert preempts == (rig.scheduler.num_preemptions > 0)


def test_sampled_tokens_are_the_same_alone_and_in_a_crowd(
    family: Family, model: LoadedModel
) -> None:
    """With a temperature, too, a request's tokens are its own affair."""
    requests = [
        replace(r, sampling=replace(r.sampling, temperature=0.9, seed=seed, top_p=0.95))
        for seed, r in enumerate(family.requests[:8])
    ]
    alone = {r.request_id: EngineRig(model).serve([r])[r.request_id] for r in requests}
    rig = EngineRig(model, num_blocks=16, budget=13)

    assert alone == rig.serve(requests, arrivals=Random(2))
    assert rig.scheduler.num_preemptions > 0
