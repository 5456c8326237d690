"""Guessed tokens change no token: not greedy ones, not sampled ones."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from engine_rig import BLOCK_SIZE, EngineRig, make_requests
from tiny_models import VOCAB_SIZE

from streamwell.engine.loader import LoadedModel

pytestmark = pytest.mark.slow


#: An answer of few words repeats itself, so that many guesses are right, and many are not.
FEW_WORDS = {"logit_bias": ((7, 100.0), (70, 100.0), (130, 100.0))}


@pytest.mark.parametrize(
    ("params", "pool_tokens", "budget", "ngram"),
    [
        ({"temperature": 0.0}, 512, 256, 4),
        ({"temperature": 0.0}, 68, 13, 4),
        ({"temperature": 0.8}, 512, 256, 1),
        ({"temperature": 0.8, "top_p": 0.9, "min_tokens": 3}, 68, 13, 4),
        ({"temperature": 0.0, "repetition_penalty": 1.02, "frequency_penalty": 0.1}, 512, 256, 4),
    ],
)
def test_tokens_are_those_without_guesses(
    model: LoadedModel, params: dict[str, object], pool_tokens: int, budget: int, ngram: int
) -> None:
    """A guess holds exactly if it is what would have been chosen, in a crowd and preempted too."""
    requests = [
        replace(r, sampling=replace(r.sampling, seed=seed, **FEW_WORDS, **params))  # type: ignore[arg-type]
        for seed, r in enumerate(make_requests(VOCAB_SIZE))
    ]
    plain = EngineRig(model)
    rig = EngineRig(model, pool_tokens=pool_tokens, budget=budget, speculative_ngram=ngram)

    assert plain.serve(requests) == rig.serve(requests, arrivals=Random(1))
    stats = rig.loop.stats()
    assert 0 < stats.num_accepted_tokens < stats.num_draft_tokens
    is_tight = pool_tokens == 68 and model.info.block_size == BLOCK_SIZE
    assert stats.num_preemptions > 0 or not is_tight
