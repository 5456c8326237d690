"""Every family that we say we serve gives the tokens of Transformers' `generate`, on every path."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from random import Random

import pytest
import torch
from engine_rig import (
    BLOCK_SIZE,
    EngineRig,
    load_model,
    reference_logits,
    reference_tokens,
    shared_beginnings,
)
from tiny_models import build
from zoo import ZOO

from streamwell.core.errors import LoadError
from streamwell.core.types import GenerateRequest, SamplingParams
from streamwell.engine import assemble
from streamwell.engine.families import DecoderSpec, Rope, describe
from streamwell.engine.loader import LoadedModel
from streamwell.engine.native import BLOCK_SIZE as NATIVE_BLOCK_SIZE
from streamwell.engine.sequence import Chunk, Sequence
from streamwell.models.small_files import read_object

pytestmark = pytest.mark.slow

MODELS = {name: impls for entry in ZOO for name, impls in entry.models.items()}
CASES = [(name, impl) for name, impls in MODELS.items() for impl in impls]
LEAN = [name for name, impls in MODELS.items() if "torch" in impls]


@dataclass(frozen=True, slots=True)
class Reference:
    """A tiny model, a workload, and what Transformers makes of it."""

    folder: Path
    requests: list[GenerateRequest]
    tokens: dict[str, list[int]]
    #: Of every token of the longest prompt.
    logits: torch.Tensor


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reference]:
    """References by the names of tiny models; each is computed once."""

    @functools.cache
    def of(name: str) -> Reference:
        folder = build(name, tmp_path_factory.mktemp(name))
        requests = shared_beginnings()[:10]
        tokens = reference_tokens(folder, requests)
        return Reference(folder, requests, tokens, reference_logits(folder, longest(requests)))

    return of


def longest(requests: list[GenerateRequest]) -> tuple[int, ...]:
    return max((request.prompt_ids for request in requests), key=len)


def logits_of(model: LoadedModel, prompt_ids: tuple[int, ...]) -> torch.Tensor:
    sequence = Sequence("", list(prompt_ids), SamplingParams(max_tokens=1))
    sequence.block_ids = list(range(1, len(prompt_ids) // model.info.block_size + 2))
    chunk = Chunk(sequence, 0, len(prompt_ids))
    with torch.inference_mode():
        return model.runner.model.forward([chunk], list(range(len(prompt_ids)))).clone().cpu()


@pytest.mark.parametrize(("name", "model_impl"), CASES)
def test_logits_and_tokens_are_the_reference(
    references: Callable[[str], Reference], name: str, model_impl: str
) -> None:
    """Logits are nearer than another approximation of GELU would be.

    Tokens alone; and all twice in a crowd, in chunks, with preemption and hits in the prefix cache.
    """
    reference = references(name)
    model = load_model(reference.folder, model_impl)
    logits = logits_of(model, longest(reference.requests))
    margin = 1e-3 if model.keeps_states else 1e-4  # a state adds up what every token rounds
    torch.testing.assert_close(logits, reference.logits, rtol=margin, atol=margin)
    alone = EngineRig(model, enable_prefix_caching=False)
    crowd = EngineRig(model, pool_tokens=80, budget=11)

    for request in reference.requests[::3]:
        outcome = alone.serve([request])[request.request_id]
        assert reference.tokens[request.request_id] == outcome.token_ids
    for seed in range(2):  # the second time everything has been there before
        outcomes = crowd.serve(reference.requests, arrivals=Random(seed))
        assert reference.tokens == {key: outcome.token_ids for key, outcome in outcomes.items()}

    assert crowd.scheduler.num_preemptions > 0
    if model.keeps_states:  # which nobody else can begin with
        assert 0 == crowd.loop.stats().num_prefix_hit_tokens
    else:
        assert crowd.loop.stats().num_prefix_hit_tokens > 10 * BLOCK_SIZE


@pytest.mark.parametrize("name", MODELS)
def test_auto_takes_the_fastest(references: Callable[[str], Reference], name: str) -> None:
    """What the table says runs a model is what runs it when nothing is asked for."""
    model = load_model(references(name).folder, block_size=NATIVE_BLOCK_SIZE)

    assert MODELS[name][0] == model.info.implementation.partition("/")[0]


def variations(spec: DecoderSpec) -> dict[str, DecoderSpec]:
    """The spec without one variation, for each that it has."""
    simpler = {
        field.name: replace(spec, **{field.name: field.default})
        for field in fields(spec)
        if field.default is not MISSING and getattr(spec, field.name) != field.default
    }
    if any(spec.windows):
        simpler["windows"] = replace(spec, windows=(None,) * spec.num_layers)
    usual = Rope(theta=10_000.0, dim=spec.head_dim)
    if set(spec.ropes) != {usual}:
        simpler["ropes"] = replace(spec, ropes=(usual,) * spec.num_layers)
    return simpler


@pytest.mark.parametrize("name", [name for name in LEAN if name != "llama"])
def test_every_variation_matters(
    references: Callable[[str], Reference], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any of its variations a model is refused or computes something else.

    So the tests above would notice if one was not there.
    """
    reference = references(name)
    spec = describe(read_object(reference.folder / "config.json"))
    assert spec is not None
    unnoticed = []
    for variation, simpler in variations(spec).items():
        monkeypatch.setattr(assemble, "describe", lambda _config, it=simpler: it)
        try:
            model = load_model(reference.folder, "torch")
        except LoadError:
            continue
        logits = logits_of(model, longest(reference.requests))
        if torch.allclose(logits, reference.logits, rtol=1e-3, atol=1e-3):
            unnoticed.append(variation)

    assert [] == unnoticed
