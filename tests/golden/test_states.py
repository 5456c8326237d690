"""Models that keep a state of each sequence: whose it is, when it begins anew, what it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from random import Random

import pytest
from engine_rig import EngineRig, load_model, make_requests, reference_tokens
from tiny_models import VOCAB_SIZE, build, build_config
from transformers import MambaConfig

from streamwell.core.errors import LoadError
from streamwell.core.types import GenerateRequest
from streamwell.engine.loader import LoadedModel
from streamwell.engine.messages import Abort, Add

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("qwen3-5", tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load_model(folder)


@pytest.fixture(scope="module")
def expected(folder: Path) -> Callable[[], dict[str, list[int]]]:
    return cache(lambda: reference_tokens(folder, make_requests(VOCAB_SIZE)))


def tokens(rig: EngineRig, requests: list[GenerateRequest], seed: int) -> dict[str, list[int]]:
    outcomes = rig.serve(requests, arrivals=Random(seed))
    return {request_id: outcome.token_ids for request_id, outcome in outcomes.items()}


@pytest.mark.parametrize("budget", [8, 13, 200])
def test_a_crowd_gives_the_reference(
    model: LoadedModel, expected: Callable[[], dict[str, list[int]]], budget: int
) -> None:
    """In chunks of any size, with many that begin, end and are preempted between the others."""
    rig = EngineRig(model, pool_tokens=96, budget=budget)

    assert expected() == tokens(rig, make_requests(VOCAB_SIZE), seed=budget)
    assert rig.scheduler.num_preemptions > 0


def test_who_is_aborted_leaves_the_others_alone(
    model: LoadedModel, expected: Callable[[], dict[str, list[int]]]
) -> None:
    """Every second one is cut off in the midst, and comes again under the same id."""
    rig, requests = EngineRig(model, budget=32), make_requests(VOCAB_SIZE)[:8]
    said: dict[str, list[int]] = {request.request_id: [] for request in requests}
    for request in requests:
        rig.loop.handle(Add(request))
    for number in count():
        if number == 4:
            for request in requests[::2]:
                rig.loop.handle(Abort(request.request_id))
                rig.loop.handle(Add(request))
                said[request.request_id].clear()
        if not rig.loop.has_work:
            break
        for output in rig.loop.step():
            said[output.request_id] += output.token_ids

    assert {request_id: expected()[request_id] for request_id in said} == said


def test_states_are_forgotten(model: LoadedModel) -> None:
    """A state goes when its sequence is over, at the latest with the next step."""
    rig = EngineRig(model)
    for seed in range(3):
        tokens(rig, make_requests(VOCAB_SIZE), seed)
    last = replace(make_requests(VOCAB_SIZE)[0], request_id="last")
    rig.serve([last])

    kept = model.runner.model._ends  # type: ignore[attr-defined]

    assert 1 == len(kept)


def test_nothing_is_shared(model: LoadedModel) -> None:
    """Of two equal prompts, one after the other, the second has no token from the cache."""
    rig = EngineRig(model)
    prompt = make_requests(VOCAB_SIZE)[1]
    again = replace(prompt, request_id="again")

    first, second = rig.serve([prompt]), rig.serve([again])

    assert first[prompt.request_id].token_ids == second["again"].token_ids
    assert 0 == rig.loop.stats().num_prefix_hit_tokens


def test_states_have_half_of_the_memory(folder: Path) -> None:
    """If not all sequences that may run find room, fewer run, and the log says so."""
    plenty = load_model(folder)
    scarce = load_model(folder, kv_cache_bytes=150_000)

    assert 8 == plenty.max_num_seqs
    assert 1 <= scarce.max_num_seqs < 8
    assert ["at most" in warning for warning in scarce.info.warnings] == [True]
    assert not plenty.info.warnings


@pytest.mark.parametrize("name", ["mamba2", "nemotron-h", "granite-4", "lfm2"])
@pytest.mark.parametrize("quantization", ["none", "int4"])
def test_rounding_is_no_obstacle(tmp_path: Path, name: str, quantization: str) -> None:
    """Of numbers in bfloat16, whatever dtype logits have, or of weights."""
    model = load_model(
        build(name, tmp_path), dtype="bfloat16", quantization=quantization, block_size=8
    )

    outcomes = EngineRig(model).serve(make_requests(VOCAB_SIZE)[:4])

    assert model.keeps_states
    assert not [outcome.error for outcome in outcomes.values() if outcome.error]


def test_nothing_is_guessed(folder: Path) -> None:
    """A wrong guess could not be taken back."""
    with pytest.raises(LoadError, match="nothing can be guessed"):
        load_model(folder, draft=folder)


def test_a_state_that_only_single_tokens_take_up_is_refused(tmp_path: Path) -> None:
    """Transformers' code for Mamba begins anew with each part of a prompt."""
    config = MambaConfig(
        vocab_size=VOCAB_SIZE, hidden_size=64, num_hidden_layers=2, state_size=8, eos_token_id=2
    )

    with pytest.raises(LoadError, match="of a text in parts it makes something else"):
        load_model(build_config(config, tmp_path))
