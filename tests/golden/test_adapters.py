"""Sequences with LoRA adapters say what PEFT's own models say, alone and beside any others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from engine_rig import EngineRig, load_model, make_requests, shared_beginnings
from safetensors.torch import load_file, save_file
from tiny_adapters import TARGETS, build_adapter, build_adapters, peft_tokens, spread
from tiny_models import VOCAB_SIZE, build
from tiny_seq2seq import build as build_seq2seq

from streamwell.core.types import GenerateRequest
from streamwell.engine.loader import LoadedModel
from streamwell.engine.messages import Add, AddAdapter, RemoveAdapter

pytestmark = pytest.mark.slow


#: By the tiny model, what runs it.
RUN_BY = [(name, model_impl) for model_impl in ("torch", "native") for name in TARGETS]


@dataclass(frozen=True, slots=True)
class Case:
    """A tiny model with adapters, a workload, and what PEFT makes of it."""

    folder: Path
    adapters: dict[str, Path]
    model: LoadedModel
    requests: list[GenerateRequest]
    expected: dict[str, list[int]]

    def load(self, **options: Any) -> LoadedModel:  # noqa: ANN401
        """The model once more, by the same implementation."""
        model_impl = self.model.info.implementation.split("/")[0]
        return load_model(self.folder, model_impl, enable_lora=True, **options)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Case]:
    """Cases by the name of the tiny model, and by what runs it; each is made once."""

    @functools.cache
    def workload(
        name: str,
    ) -> tuple[Path, dict[str, Path], list[GenerateRequest], dict[str, list[int]]]:
        folder = build(name, tmp_path_factory.mktemp(name))
        adapters = build_adapters(name, folder, tmp_path_factory.mktemp(f"{name}-adapters"))
        requests = spread(shared_beginnings(), adapters)
        return folder, adapters, requests, peft_tokens(folder, adapters, requests)

    @functools.cache
    def of(name: str, model_impl: str) -> Case:
        folder, adapters, requests, expected = workload(name)
        model = load_model(folder, model_impl, enable_lora=True)
        return Case(folder, adapters, model, requests, expected)

    return of


@pytest.fixture(params=["torch", "native"])
def llama(cases: Callable[[str, str], Case], request: pytest.FixtureRequest) -> Iterator[Case]:
    """A Llama, whose adapters are gone after the test."""
    case = cases("llama", request.param)
    yield case
    assert case.model.adapters is not None
    for name in (*case.adapters, "other"):
        case.model.adapters.remove(name)


def rig_of(case: Case, **options: int) -> EngineRig:
    """An engine with all adapters of a case."""
    rig = EngineRig(case.model, **options)
    for number, (name, path) in enumerate(case.adapters.items(), start=1):
        assert (number, None) == add(rig, number, name, path)
    return rig


def add(rig: EngineRig, number: int, name: str, path: Path) -> tuple[int, str | None]:
    answer = rig.loop.handle(AddAdapter(number, name, str(path)))
    assert answer is not None
    return answer.number, answer.error


def tokens_of(rig: EngineRig, requests: list[GenerateRequest], seed: int) -> dict[str, list[int]]:
    outcomes = rig.serve(requests, arrivals=Random(seed))
    return {name: outcome.token_ids for name, outcome in outcomes.items()}


@pytest.mark.parametrize(("name", "model_impl"), RUN_BY)
def test_a_mixed_crowd_gives_the_reference(
    cases: Callable[[str, str], Case], name: str, model_impl: str
) -> None:
    """Three adapters and the model itself in one batch, with preemption and prefix hits."""
    case = cases(name, model_impl)
    rig = rig_of(case, pool_tokens={"torch": 80, "native": 128}[model_impl], budget=11)

    for seed in range(2):  # the second time everything has been there before
        assert case.expected == tokens_of(rig, case.requests, seed)

    assert rig.scheduler.num_preemptions > 0
    assert rig.loop.stats().num_prefix_hit_tokens > 0


def test_a_request_alone_gives_the_reference(llama: Case) -> None:
    """One request at a time: then all rows of a step have the same adapter."""
    rig = rig_of(llama)

    tokens = {r.request_id: rig.serve([r])[r.request_id].token_ids for r in llama.requests}

    assert llama.expected == tokens


def test_guesses_change_nothing(llama: Case) -> None:
    """Those of a draft model, that is, which has no adapters."""
    drafted = replace(llama, model=llama.load(draft=llama.folder))
    rig = rig_of(drafted, speculative_tokens=3)

    assert llama.expected == tokens_of(rig, llama.requests, 1)

    stats = rig.loop.stats()
    assert 0 < stats.num_accepted_tokens < stats.num_draft_tokens


def test_adapters_change_what_is_said(llama: Case) -> None:
    """Each of them, so that the reference means something; the model without stays as it is."""
    rig = rig_of(llama)
    requests = make_requests(VOCAB_SIZE)[:4]

    def said(adapter: str) -> list[list[int]]:
        outcomes = rig.serve([replace(r, adapter=adapter) for r in requests])
        return [outcome.token_ids for outcome in outcomes.values()]

    spoken = [said(adapter) for adapter in ("", *llama.adapters)]

    assert 4 == len({str(tokens) for tokens in spoken})
    assert spoken[0] == said("")


def test_what_is_cached_belongs_to_one_load_of_one_adapter(llama: Case) -> None:
    """Not to the model, not to another adapter, not to another one of the same name."""
    rig = rig_of(llama)
    request = replace(llama.requests[1], prompt_ids=tuple(range(10, 50)))

    def hits(adapter: str) -> int:
        before = rig.loop.stats().num_prefix_hit_tokens
        rig.serve([replace(request, adapter=adapter)])
        return rig.loop.stats().num_prefix_hit_tokens - before

    names = ("", "every", "attention", "every", "attention", "")
    block_size = llama.model.info.block_size
    num_full = 39 // block_size * block_size
    assert [0, 0, 0, num_full, num_full, num_full] == [hits(name) for name in names]

    rig.loop.handle(RemoveAdapter("every"))
    assert (9, None) == add(rig, 9, "every", llama.adapters["upper"])
    assert [0, num_full, num_full] == [hits("every"), hits("every"), hits("attention")]
    again = rig.serve([replace(request, adapter="every")])
    assert rig.serve([replace(request, adapter="upper")]) == again


def test_an_adapter_that_is_removed_takes_its_requests_along(llama: Case) -> None:
    """They fail, running or waiting, and nobody else does; nor is a block lost."""
    rig = rig_of(llama, pool_tokens=80, budget=11)
    outcomes = dict.fromkeys((r.request_id for r in llama.requests), "")
    tokens: dict[str, list[int]] = {name: [] for name in outcomes}

    for request in llama.requests:
        rig.loop.handle(Add(request))
    for step in range(1000):
        if step == 4:
            rig.loop.handle(RemoveAdapter("attention"))
        for output in rig.loop.step():
            tokens[output.request_id] += output.token_ids
            outcomes[output.request_id] = output.error or ""
        rig.scheduler.check_integrity()
        if not rig.loop.has_work:
            break

    removed = {r.request_id for r in llama.requests if r.adapter == "attention"}
    failed = {name for name, error in outcomes.items() if error}
    assert failed <= removed
    assert len(failed) > 2
    assert {"the adapter 'attention' was removed"} == {outcomes[name] for name in failed}
    assert all(llama.expected[n] == tokens[n] for n in outcomes if n not in removed)
    assert 0 == rig.pool.num_used


def test_an_unknown_adapter_fails_alone(llama: Case) -> None:
    """Its request is refused by name; the others are what they are."""
    rig = rig_of(llama)
    lost = replace(llama.requests[0], request_id="lost", adapter="nobody")

    outcomes = rig.serve([lost, *llama.requests])

    assert "there is no adapter 'nobody'" == outcomes.pop("lost").error
    assert llama.expected == {name: outcome.token_ids for name, outcome in outcomes.items()}


def test_an_adapter_without_measure_fails_alone(llama: Case, tmp_path: Path) -> None:
    """Finite weights may give logits that are not: that ends its own requests and no others."""
    wild = build_adapter(llama.folder, tmp_path, r=2, target_modules=["q_proj", "down_proj"])
    file = wild / "adapter_model.safetensors"
    save_file({name: weight * 1e25 for name, weight in load_file(file).items()}, file)
    rig = rig_of(llama)
    assert (9, None) == add(rig, 9, "other", wild)
    poisoned = [
        replace(r, request_id=f"wild{i}", adapter="other") for i, r in enumerate(llama.requests)
    ]

    outcomes = rig.serve([r for pair in zip(poisoned, llama.requests, strict=True) for r in pair])

    assert all(outcomes.pop(r.request_id).error for r in poisoned)
    assert llama.expected == {name: outcome.token_ids for name, outcome in outcomes.items()}


def test_adapters_are_limited(llama: Case) -> None:
    """Once there are as many as allowed, one has to go before another comes."""
    rig = EngineRig(llama.load(max_loras=2))
    paths = list(llama.adapters.values())
    for number in (1, 2):
        assert (number, None) == add(rig, number, f"a{number}", paths[number])

    assert "--max-loras" in (add(rig, 3, "a3", paths[0])[1] or "")
    assert (4, None) == add(rig, 4, "a1", paths[1])  # it is there already
    rig.loop.handle(RemoveAdapter("a1"))
    assert (5, None) == add(rig, 5, "a3", paths[0])


def test_models_that_take_no_adapters_say_so(llama: Case, tmp_path: Path) -> None:
    """Transformers' own code and encoder-decoders; others of the same server may take some."""
    for model_impl, folder in (
        ("transformers", llama.folder),
        ("auto", build("opt", tmp_path / "opt")),
        ("auto", build_seq2seq("t5", tmp_path / "t5")),
    ):
        model = load_model(folder, model_impl, enable_lora=True)
        plain = load_model(folder, model_impl)
        assert model.adapters is None
        assert plain.info.implementation == model.info.implementation
        assert "adapters cannot be added" in model.info.warnings[0]
