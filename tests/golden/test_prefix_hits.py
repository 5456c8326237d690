"""What is taken over from the prefix cache changes no token."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from engine_rig import BLOCK_SIZE, EngineRig, reference_tokens, shared_beginnings

from streamwell.core.types import GenerateRequest, SamplingParams
from streamwell.engine.loader import LoadedModel

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def requests_() -> list[GenerateRequest]:
    return shared_beginnings()


@pytest.fixture(scope="module")
def expected(folder: Path, requests_: list[GenerateRequest]) -> dict[str, list[int]]:
    return reference_tokens(folder, requests_)


@pytest.mark.parametrize(("pool_tokens", "budget"), [(512, 256), (512, 9), (68, 11)])
def test_hits_give_the_reference(
    model: LoadedModel,
    requests_: list[GenerateRequest],
    expected: dict[str, list[int]],
    pool_tokens: int,
    budget: int,
) -> None:
    """Shared beginnings, with and without eviction and preemption: as if each were computed."""
    rig = EngineRig(model, pool_tokens=pool_tokens, budget=budget)

    for seed in range(2):  # the second time everything has been there before
        outcomes = rig.serve(requests_, arrivals=Random(seed))
        assert expected == {name: outcome.token_ids for name, outcome in outcomes.items()}

    assert rig.loop.stats().num_prefix_hit_tokens > 20 * BLOCK_SIZE


def test_the_next_turns_compute_only_what_is_new(model: LoadedModel) -> None:
    """Of a conversation of ten turns each turn's prefill is its own new tokens and a block."""
    rig, cold = EngineRig(model), EngineRig(model, enable_prefix_caching=False)
    sampling = SamplingParams(max_tokens=3, min_tokens=3, temperature=0.0)
    history: tuple[int, ...] = ()
    before = 0
    for turn in range(10):
        prompt = (*history, 50 + turn, 60 + turn, 70 + turn)
        request = GenerateRequest(request_id=f"t{turn}", prompt_ids=prompt, sampling=sampling)
        outcome = rig.serve([request])[request.request_id]
        assert cold.serve([request])[request.request_id] == outcome
        stats = rig.loop.stats()
        num_computed = stats.num_prefix_queried_tokens - stats.num_prefix_hit_tokens - before
        # its three tokens, the last one generated, and what of a block was not full
        assert num_computed <= 3 + 1 + (model.info.block_size - 1)
        before += num_computed
        history = (*prompt, *outcome.token_ids)

    assert 0 == cold.loop.stats().num_prefix_hit_tokens
