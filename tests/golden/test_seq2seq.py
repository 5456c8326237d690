"""Encoder-decoders: greedy tokens are those of Transformers' `generate`, alone and in any crowd."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from engine_rig import MAX_MODEL_LEN, EngineRig, load_model
from tiny_seq2seq import CONFIGS, NOT_NATIVE, VOCAB_SIZE, build
from transformers import AutoModelForSeq2SeqLM

from streamwell.core.types import GenerateRequest, SamplingParams
from streamwell.engine.loader import LoadedModel
from streamwell.engine.sequence import Chunk, Sequence

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Family:
    """A model loaded on one of its paths, a workload, and what Transformers makes of it."""

    folder: Path
    model: LoadedModel
    reference: Any
    requests: list[GenerateRequest]
    expected: dict[str, list[int]]


def make_requests(count: int = 12) -> list[GenerateRequest]:
    """Inputs of mixed lengths; a third goes on after other ids.

    Some may end by themselves. Most are made to say something new with every token, since random
    models like to repeat themselves.
    """
    rng = Random(0)
    requests = []
    for i in range(count):
        length = {0: 1, 1: MAX_MODEL_LEN, 2: 8, 4: 8}.get(i, rng.randint(1, 40))
        max_tokens = rng.randint(1, 20)
        sampling = SamplingParams(
            max_tokens=max_tokens + 12,
            min_tokens=0 if i % 4 == 3 else max_tokens + 12,
            temperature=0.0,
            repetition_penalty=1.0 if i % 4 == 0 else 1.8,
        )
        requests.append(
            GenerateRequest(
                request_id=f"r{i}",
                prompt_ids=tuple(rng.randrange(3, VOCAB_SIZE - 1) for _ in range(length)),
                sampling=sampling,
                completion_ids=tuple(rng.randrange(3, VOCAB_SIZE - 1) for _ in range(12))
                if i % 3 == 2
                else (),
            )
        )
    return requests


def reference_tokens(
    model: Any,  # noqa: ANN401 - Transformers is not typed
    requests: list[GenerateRequest],
    start_ids: tuple[int, ...],
) -> dict[str, list[int]]:
    """What `generate(do_sample=False)` of Transformers gives each request, one by one."""
    tokens = {}
    for request in requests:
        ids = torch.tensor([request.prompt_ids])
        num_before = len(request.completion_ids)
        # alone, it finds out itself what to begin with
        given = torch.tensor([[*start_ids, *request.completion_ids]]) if num_before else None
        num_forced = 0 if num_before else len(start_ids) - 1
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            decoder_input_ids=given,
            do_sample=False,
            max_new_tokens=request.sampling.max_tokens - num_before + num_forced,
            min_new_tokens=max(0, request.sampling.min_tokens - num_before + num_forced),
            repetition_penalty=request.sampling.repetition_penalty,
        )
        tokens[request.request_id] = out[0, len(start_ids) + num_before :].tolist()
    return tokens


@pytest.fixture(scope="module")
def torch_families(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Family]:
    """By the names of tiny models, in PyTorch; each is made once."""

    @functools.cache
    def of(name: str) -> Family:
        folder = build(name, tmp_path_factory.mktemp(name))
        model, requests = load_model(folder, "torch"), make_requests()
        reference = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        expected = reference_tokens(reference, requests, model.info.start_ids)
        return Family(folder, model, reference, requests, expected)

    return of


CASES = [(name, "torch") for name in CONFIGS]
CASES += [(name, "native") for name in CONFIGS if name not in NOT_NATIVE]


#: One of each kind, for every sort of crowd.
CHOSEN = [(name, model_impl) for name, model_impl in CASES if name in ("flan-t5", "mbart")]


@pytest.fixture(scope="module")
def family(request: pytest.FixtureRequest, torch_families: Callable[[str], Family]) -> Family:
    name, model_impl = request.param
    family = torch_families(name)
    if model_impl == "torch":
        return family
    return replace(family, model=load_model(family.folder, model_impl))


def families(cases: list[tuple[str, str]]) -> pytest.MarkDecorator:
    """Run a test with each of these."""
    return pytest.mark.parametrize("family", sorted(cases), ids="-".join, indirect=True)


@families(CASES)
@torch.inference_mode()
def test_logits_are_the_reference(family: Family) -> None:
    """Not only the largest one: temperatures and penalties need all of them at their true size."""
    rng = Random(1)
    input_ids, token_ids = (
        [rng.randrange(3, VOCAB_SIZE - 1) for _ in range(count)] for count in (30, 17)
    )
    given = {"input_ids": torch.tensor([input_ids]), "decoder_input_ids": torch.tensor([token_ids])}
    expected = family.reference(**given).logits[0]
    seq = Sequence("r", token_ids, SamplingParams(max_tokens=1), encoder_ids=tuple(input_ids))
    seq.block_ids, seq.cross_block_ids = list(range(1, 6)), list(range(6, 14))

    logits = family.model.runner.model.forward([Chunk(seq, 0, 17)], list(range(17))).cpu()

    is_banned = logits.isneginf()  # what is never said
    assert (17 if "marian" in family.folder.name else 0) == is_banned.sum()
    torch.testing.assert_close(logits[~is_banned], expected[~is_banned], rtol=1e-3, atol=1e-3)


def crowd(family: Family, pool_tokens: int, budget: int) -> EngineRig:
    """Serve a family's requests, which come late and beside each other; returns what did."""
    rig = EngineRig(family.model, pool_tokens=pool_tokens, budget=budget)

    outcomes = rig.serve(family.requests, arrivals=Random(1))

    assert family.expected == {name: outcome.token_ids for name, outcome in outcomes.items()}
    assert {None} == {outcome.error for outcome in outcomes.values()}
    return rig


@families(CASES)
def test_a_crowd_gives_the_reference(family: Family) -> None:
    """Neighbours, late arrivals, cut prefixes and preemption change no token."""
    assert crowd(family, 160, 11).scheduler.num_preemptions > 0


@families(CHOSEN)
@pytest.mark.parametrize(
    ("pool_tokens", "budget", "preempts"),
    [
        pytest.param(1024, 8, False, id="one encoder per step"),
        pytest.param(160, 256, True, id="several encoders per step"),
    ],
)
def test_other_crowds_do_too(family: Family, pool_tokens: int, budget: int, preempts: bool) -> None:
    """With inputs that are read one by one or together, with room for all or not."""
    assert preempts == (crowd(family, pool_tokens, budget).scheduler.num_preemptions > 0)


@families(CHOSEN)
def test_a_request_alone_gives_the_reference(family: Family) -> None:
    """One request at a time: the tokens are those of `generate`, also after a resumed prefix."""
    rig = EngineRig(family.model)

    tokens = {r.request_id: rig.serve([r])[r.request_id].token_ids for r in family.requests}

    assert family.expected == tokens


@families(CHOSEN)
def test_guessed_tokens_change_nothing(family: Family) -> None:
    """Prompt lookup guesses over the decoder's own tokens, and the answers stay the same."""
    rig = EngineRig(family.model, budget=64, speculative_ngram=4)

    outcomes = rig.serve(family.requests, arrivals=Random(3))

    assert family.expected == {name: outcome.token_ids for name, outcome in outcomes.items()}


@families(CHOSEN)
def test_sampled_tokens_are_the_same_alone_and_in_a_crowd(family: Family) -> None:
    """With a temperature, too, a request's tokens are its own affair."""
    requests = [
        replace(
            r,
            sampling=replace(
                r.sampling, temperature=0.9, seed=seed, top_p=0.95, min_tokens=r.sampling.max_tokens
            ),
        )
        for seed, r in enumerate(family.requests[:8])
    ]
    alone = {r.request_id: EngineRig(family.model).serve([r])[r.request_id] for r in requests}
    rig = EngineRig(family.model, pool_tokens=160, budget=13)

    assert alone == rig.serve(requests, arrivals=Random(2))
    assert rig.scheduler.num_preemptions > 0
