"""One sequence that cannot go on: it fails alone, and leaves nothing bad behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from engine_rig import EngineRig, load_model, make_requests, reference_tokens
from safetensors.torch import load_file, save_file
from tiny_models import build

from streamwell.core.types import FinishReason, GenerateRequest
from streamwell.engine.loader import LoadedModel

pytestmark = pytest.mark.slow

#: The id whose embedding is not a number.
POISON = 299


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with one embedding that is NaN; its output layer never chooses that id."""
    folder = build("llama", tmp_path_factory.mktemp("poisoned"))
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][POISON] = float("nan")
    weights["lm_head.weight"][POISON] = 0.0
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def requests_() -> list[GenerateRequest]:
    return make_requests(POISON)


@pytest.fixture(scope="module")
def expected(folder: Path, requests_: list[GenerateRequest]) -> dict[str, list[int]]:
    return reference_tokens(folder, requests_)


@pytest.fixture(scope="module", params=["native", "torch", "transformers"])
def model(folder: Path, request: pytest.FixtureRequest) -> LoadedModel:
    return load_model(folder, request.param)


def poisoned(request: GenerateRequest, name: str, at: int) -> GenerateRequest:
    ids = [*request.prompt_ids[:at], POISON, *request.prompt_ids[at + 1 :]]
    return replace(request, request_id=name, prompt_ids=tuple(ids))


@pytest.mark.parametrize("budget", [9, 256])
def test_a_poisoned_sequence_fails_alone(
    model: LoadedModel,
    requests_: list[GenerateRequest],
    expected: dict[str, list[int]],
    budget: int,
) -> None:
    """Its neighbours, and those who get its blocks after it, give the reference."""
    bad = [poisoned(requests_[1], f"bad{at}", at) for at in (0, 20, 39)]
    crowd = [bad[0], *requests_[:5], bad[1], *requests_[5:10], bad[2], *requests_[10:]]
    rig = EngineRig(model, pool_tokens=96, budget=budget)

    outcomes = rig.serve(crowd, arrivals=Random(3))

    failed = [outcomes.pop(request.request_id) for request in bad]
    assert [([], FinishReason.ERROR, "the logits are not finite")] * 3 == [
        (outcome.token_ids, outcome.finish_reason, outcome.error) for outcome in failed
    ]
    assert expected == {name: outcome.token_ids for name, outcome in outcomes.items()}


def test_a_cache_full_of_poison_is_reused_safely(
    model: LoadedModel, requests_: list[GenerateRequest], expected: dict[str, list[int]]
) -> None:
    """After poison has been in every block, everything is as with a fresh cache."""
    rig = EngineRig(model, pool_tokens=80)
    longest = requests_[1]
    rig.serve([poisoned(longest, f"bad{i}", 0) for i in range(4)])

    outcomes = rig.serve(requests_)

    assert expected == {name: outcome.token_ids for name, outcome in outcomes.items()}


@pytest.mark.parametrize(
    ("field", "token_ids"),
    [("prompt", (5, -1)), ("prompt", (100_000,)), ("bias", ()), ("stop", ())],
)
def test_a_bad_id_is_refused_alone(
    model: LoadedModel,
    requests_: list[GenerateRequest],
    expected: dict[str, list[int]],
    field: str,
    token_ids: tuple[int, ...],
) -> None:
    """An id outside the vocabulary ends its own request with an error; the others go on."""
    good = requests_[:5]
    bad = replace(good[0], request_id="bad", prompt_ids=token_ids or (5,))
    if field == "bias":
        bad = replace(bad, sampling=replace(bad.sampling, logit_bias=((100_000, 1.0),)))
    if field == "stop":
        bad = replace(bad, sampling=replace(bad.sampling, stop_token_ids=(100_000,)))

    outcomes = EngineRig(model).serve([*good[:2], bad, *good[2:]])

    refused = outcomes.pop("bad")
    assert ([], FinishReason.ERROR) == (refused.token_ids, refused.finish_reason)
    assert "not in the vocabulary" in (refused.error or "")
    assert {r.request_id: expected[r.request_id] for r in good} == {
        name: outcome.token_ids for name, outcome in outcomes.items()
    }
