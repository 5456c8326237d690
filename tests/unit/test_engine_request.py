"""What the engine is asked for a run, and how a run counts what the engine did."""

from __future__ import annotations

import pytest

from streamwell.core.engine_state import EngineInfo
from streamwell.core.types import FinishReason, RunKind, RunSpec, SamplingParams, Usage
from streamwell.service.acceptance import engine_request
from streamwell.service.generation import Finished, TextDelta
from streamwell.service.runs import Run

INFO = EngineInfo(
    max_model_len=20, vocab_size=9, num_blocks=9, block_size=4, dtype="float32", device="cpu"
)


def a_spec(*, num_choices: int = 2, max_tokens: int = 5) -> RunSpec:
    return RunSpec(
        run_id="r",
        kind=RunKind.COMPLETION,
        tenant="somebody",
        model="m",
        created_s=0,
        prompts=((1, 2, 3), (4, 5)),
        num_choices=num_choices,
        sampling=SamplingParams(max_tokens=max_tokens, seed=7),
        stop=(),
        priority=-3,
    )


@pytest.mark.parametrize(
    ("index", "prompt"), [(0, (1, 2, 3)), (1, (1, 2, 3)), (2, (4, 5)), (3, (4, 5))]
)
def test_each_choice_is_a_request_of_its_tenant(index: int, prompt: tuple[int, ...]) -> None:
    """A prompt per group of choices, a seed per choice; the tenant's cache, the run's priority."""
    request = engine_request(a_spec(), index, INFO)

    assert (f"r/{index}", prompt, 7 + index) == (
        request.request_id,
        request.prompt_ids,
        request.sampling.seed,
    )
    assert ("somebody", -3) == (request.cache_salt, request.priority)


def test_the_context_bounds_what_is_asked() -> None:
    """A prompt and its answer fit together."""
    assert 17 == engine_request(a_spec(max_tokens=99), 0, INFO).sampling.max_tokens


def test_a_prompt_counts_once() -> None:
    """Cached tokens are those of each prompt's first choice, so they never exceed the prompts."""
    run = Run(a_spec())
    for index, num_cached_tokens in enumerate((0, 2, 1, 1)):
        run.delta(index, TextDelta("a", (1,)))
        run.finish(index, Finished(FinishReason.STOP, (2,), num_cached_tokens))

    assert Usage(5, 8, 1) == run.usage() == run.end().usage
