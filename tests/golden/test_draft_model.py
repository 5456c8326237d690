"""A draft model changes no token, and what it has computed is what the model has computed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from engine_rig import BLOCK_SIZE, EngineRig, load_model, make_requests, shared_beginnings
from tiny_models import VOCAB_SIZE, build

from streamwell.core.types import GenerateRequest
from streamwell.engine.loader import LoadedModel

pytestmark = pytest.mark.slow

#: Tokens of the whole cache, tokens per step, guesses.
SIZES = [(512, 256, 4), (512, 256, 1), (68, 13, 4)]
SAMPLED = {"temperature": 0.8, "top_p": 0.9}
PENALISED = {"repetition_penalty": 1.3, "frequency_penalty": 0.2}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two models of the same weights; one of them sees eight tokens back, and the other all."""
    names = ("llama", "mistral-window")
    return {name: build(name, tmp_path_factory.mktemp(name)) for name in names}


@pytest.fixture(scope="module", params=["native", "torch"])
def pairs(folders: dict[str, Path], request: pytest.FixtureRequest) -> dict[str, LoadedModel]:
    """The first with the other as its draft, with itself, and without any."""
    model, other = folders.values()
    drafts = {"other": other, "itself": model, "none": None}
    return {name: load_model(model, request.param, draft=draft) for name, draft in drafts.items()}


def requests_with(**params: Any) -> list[GenerateRequest]:  # noqa: ANN401 - sampling parameters
    """Prompts of all lengths, some with beginnings in common."""
    requests = [*make_requests(VOCAB_SIZE), *shared_beginnings()]
    return [
        replace(r, request_id=f"r{i}", sampling=replace(r.sampling, seed=i, **params))
        for i, r in enumerate(requests)
    ]


@pytest.mark.parametrize("params", [{}, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize(("pool_tokens", "budget", "guesses"), SIZES)
def test_tokens_are_those_without_a_draft_model(
    pairs: dict[str, LoadedModel],
    params: dict[str, Any],
    pool_tokens: int,
    budget: int,
    guesses: int,
) -> None:
    """Right guesses and wrong ones, in a crowd, in small chunks and preempted too."""
    requests = requests_with(**params)
    rig = EngineRig(
        pairs["other"], pool_tokens=pool_tokens, budget=budget, speculative_tokens=guesses
    )

    outcomes = rig.serve(requests, arrivals=Random(1))

    assert EngineRig(pairs["none"]).serve(requests) == outcomes
    stats = rig.loop.stats()
    assert 0 < stats.num_accepted_tokens < stats.num_draft_tokens
    is_tight = pool_tokens == 68 and pairs["other"].info.block_size == BLOCK_SIZE
    assert stats.num_preemptions > 0 or not is_tight


@pytest.mark.parametrize("params", [{}, SAMPLED, PENALISED], ids=["greedy", "sampled", "penalised"])
@pytest.mark.parametrize(("pool_tokens", "budget", "guesses"), SIZES)
def test_a_model_guesses_right_what_it_says_itself(
    pairs: dict[str, LoadedModel],
    params: dict[str, Any],
    pool_tokens: int,
    budget: int,
    guesses: int,
) -> None:
    """So a draft model knows all that was said, wherever chunks, cached prefixes and steps end."""
    requests = requests_with(ignore_eos=True, **params)
    rig = EngineRig(
        pairs["itself"], pool_tokens=pool_tokens, budget=budget, speculative_tokens=guesses
    )

    rig.serve(requests, arrivals=Random(2))

    stats = rig.loop.stats()
    assert stats.num_draft_tokens > 100
    assert stats.num_prefix_hit_tokens > 0
    if pairs["itself"].info.implementation.startswith("native"):
        assert stats.num_draft_tokens == stats.num_accepted_tokens
    else:  # rows of PyTorch's products depend on their neighbours, in the last bits
        assert stats.num_accepted_tokens > 0.98 * stats.num_draft_tokens
