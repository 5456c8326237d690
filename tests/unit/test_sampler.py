"""The sampler, checked against Transformers' logits processors and against the formulas."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from streamwell.core.types import SamplingParams
from streamwell.engine.sampler import Sampler
from streamwell.engine.sequence import Sampled, Sequence

VOCAB_SIZE, NUM_DRAWS = 32, 2500
EOS = frozenset({2, 5})
#: Five standard deviations: wide for one cell, and every cell of every case is inside.
MAX_SIGMAS = 5.0

PROMPT = (1, 4, 4, 9)
COMPLETION = (4, 7, 7, 7, 11)


def a_seq(
    params: SamplingParams, prompt: tuple[int, ...] = PROMPT, completion: tuple[int, ...] = ()
) -> Sequence:
    seq = Sequence("a", list(prompt), params)
    seq.token_ids.extend(completion)
    return seq


def params_of(**params: object) -> SamplingParams:
    return SamplingParams(max_tokens=99, **params)  # type: ignore[arg-type]


def some_logits(rows: int = 1, seed: int = 0, spread: float = 2.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(rows, VOCAB_SIZE, generator=generator)


def tokens_of(sampled: list[Sampled]) -> list[int]:
    assert [None] * len(sampled) == [one.error for one in sampled]
    return [one.token_id for one in sampled]


def draw_many(logits: torch.Tensor, seq: Sequence, times: int = NUM_DRAWS) -> Counter[int]:
    """What one row of logits gives under many seeds."""
    seqs = [
        a_seq(
            replace(seq.sampling, seed=seed),
            tuple(seq.token_ids[: seq.num_prompt_tokens]),
            tuple(seq.token_ids[seq.num_prompt_tokens :]),
        )
        for seed in range(times)
    ]
    return Counter(tokens_of(Sampler(EOS)(logits.repeat(times, 1), seqs)))


def assert_drawn_from(expected: torch.Tensor, drawn: Counter[int]) -> None:
    """The frequencies are those of `[vocab_size]` probabilities, within the bounds of chance."""
    kept = {token for token, prob in enumerate(expected.tolist()) if prob > 0}
    assert drawn.keys() <= kept
    # every token that is kept shows, unless it is so rare that it may not
    assert {token for token in kept if expected[token] * NUM_DRAWS > 10} <= drawn.keys()
    for token, prob in enumerate(expected.double().tolist()):
        deviation = (NUM_DRAWS * prob * (1 - prob)) ** 0.5
        assert abs(drawn[token] - NUM_DRAWS * prob) <= MAX_SIGMAS * deviation + 1e-3


def oracle(logits: torch.Tensor, seq: Sequence) -> torch.Tensor:
    """Transformers' probabilities, `[vocab_size]`."""
    params = seq.sampling
    processors = LogitsProcessorList()
    if params.repetition_penalty != 1.0:
        processors.append(RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    processors.append(TemperatureLogitsWarper(params.temperature))
    if params.top_k:
        processors.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1.0:
        processors.append(TopPLogitsWarper(params.top_p))
    if params.min_p > 0.0:
        processors.append(MinPLogitsWarper(params.min_p))
    scores = processors(torch.tensor([seq.token_ids]), logits.clone())
    return scores.softmax(-1)[0]


def greedy_of(logits: torch.Tensor, seq: Sequence) -> list[int]:
    """All token ids, best first: what greedy gives as each winner is banned in turn."""
    order: list[int] = []
    for _ in range(VOCAB_SIZE):
        banned = tuple((token, float("-inf")) for token in order)
        params = replace(seq.sampling, logit_bias=(*seq.sampling.logit_bias, *banned))
        order += tokens_of(
            Sampler(EOS)(logits.clone(), [replace_params(seq, params)]),
        )
    return order


def replace_params(seq: Sequence, params: SamplingParams) -> Sequence:
    num_prompt = seq.num_prompt_tokens
    return a_seq(params, tuple(seq.token_ids[:num_prompt]), tuple(seq.token_ids[num_prompt:]))


ORACLE_CASES = {
    "plain": {},
    "cold": {"temperature": 0.4},
    "hot": {"temperature": 1.7},
    "top-k": {"top_k": 5},
    "top-k of one": {"top_k": 1},
    "top-k over the vocabulary": {"top_k": 1000},
    "top-p": {"top_p": 0.8},
    "top-p next to nothing": {"top_p": 0.01},
    "min-p": {"min_p": 0.1},
    "min-p of one": {"min_p": 1.0},
    "top-k, then top-p": {"top_k": 6, "top_p": 0.9},
    "top-k of many, then top-p": {"top_k": 700, "top_p": 0.9},
    "top-k of as many as are put in order at first": {"top_k": 256},
    "all cuts, hot": {"temperature": 1.5, "top_k": 12, "top_p": 0.9, "min_p": 0.08},
    "repetition discouraged": {"repetition_penalty": 1.8},
    "repetition encouraged": {"repetition_penalty": 0.6},
    "everything": {"temperature": 0.8, "repetition_penalty": 1.3, "top_k": 9, "top_p": 0.85},
}


@pytest.mark.parametrize("params", ORACLE_CASES.values(), ids=ORACLE_CASES)
def test_draws_are_those_of_transformers(params: dict[str, float]) -> None:
    """The same tokens are kept, with the same probabilities, under every parameter."""
    logits = some_logits(seed=3)
    seq = a_seq(params_of(**params), completion=COMPLETION)

    assert_drawn_from(oracle(logits, seq), draw_many(logits, seq))


@pytest.mark.parametrize("spread", [0.1, 3.0, 12.0], ids=["flat", "usual", "steep"])
@pytest.mark.parametrize("params", ORACLE_CASES.values(), ids=ORACLE_CASES)
def test_a_large_vocabulary_is_drawn_from_as_by_transformers(
    params: dict[str, float], spread: float
) -> None:
    """A cut may leave one of 6001 tokens, thousands or all: each part gets its share of draws."""
    logits = spread * torch.randn(1, 6001, generator=torch.Generator().manual_seed(5))
    seq = a_seq(params_of(**params), completion=COMPLETION)
    expected = oracle(logits, seq)

    drawn = draw_many(logits, seq, times=600)

    assert drawn.keys() <= set(expected.nonzero()[:, 0].tolist())
    shares = torch.stack([part.sum() for part in expected.split(500)]).tolist()
    parts: Counter[int] = Counter()
    for token, count in drawn.items():
        parts[token // 500] += count
    for part, share in enumerate(shares):
        deviation = (600 * share * max(0.0, 1 - share)) ** 0.5
        assert abs(parts[part] - 600 * share) <= MAX_SIGMAS * deviation + 1e-2


@pytest.mark.parametrize(
    ("params", "num_waits"), [({"top_k": 9, "top_p": 0.9}, 0), ({"top_p": 0.9}, 1)]
)
def test_a_draw_from_few_tokens_is_not_waited_for(
    params: dict[str, float], num_waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That they are enough is known beforehand; else the host has to ask the device."""
    asked: list[torch.Tensor] = []
    as_list = torch.Tensor.tolist
    monkeypatch.setattr(
        torch.Tensor, "tolist", lambda tensor: asked.append(tensor) or as_list(tensor)
    )
    Sampler(frozenset()).draw(some_logits(2), [a_seq(params_of(temperature=1.0, **params))] * 2)

    assert num_waits == len([tensor for tensor in asked if tensor.dtype is torch.bool])


def test_each_row_has_its_own_parameters() -> None:
    """Rows of one batch are cut, scaled and penalised apart."""
    logits = some_logits(seed=4)
    cases = list(ORACLE_CASES.values())
    drawn: list[Counter[int]] = [Counter() for _ in cases]
    for seed in range(100):
        seqs = [a_seq(params_of(seed=seed, **case), completion=COMPLETION) for case in cases]
        tokens = tokens_of(Sampler(EOS)(logits.repeat(len(cases), 1), seqs))
        for counter, token in zip(drawn, tokens, strict=True):
            counter[token] += 1

    for case, counter in zip(cases, drawn, strict=True):
        seq = a_seq(params_of(**case), completion=COMPLETION)
        assert counter.keys() <= set(oracle(logits, seq).nonzero()[:, 0].tolist())


@pytest.mark.parametrize("temperature", [0.0, 1e-6])
def test_zero_temperature_is_greedy(temperature: float) -> None:
    """The token of the largest logit is taken, whatever the seed and the cuts."""
    logits = some_logits(rows=50)
    seqs = [a_seq(params_of(temperature=temperature, seed=seed, top_p=0.5)) for seed in range(50)]

    assert logits.argmax(-1).tolist() == tokens_of(Sampler(EOS)(logits.clone(), seqs))


def test_half_precision_logits_are_left_as_they_are() -> None:
    """bfloat16 logits are sampled in float32, and not changed."""
    logits = some_logits(rows=3).bfloat16()
    before = logits.clone()
    seqs = [a_seq(params_of(temperature=0, logit_bias=((7, 100.0),)))] * 3

    assert [7, 7, 7] == tokens_of(Sampler(EOS)(logits, seqs))
    assert torch.equal(before, logits)


@pytest.mark.parametrize(
    ("presence", "frequency"), [(1.5, 0.0), (0.0, 0.7), (0.9, 0.4), (-1.1, -0.3)]
)
def test_penalties_follow_their_formula(presence: float, frequency: float) -> None:
    """A logit loses `presence + count * frequency`, counted over the completion alone."""
    logits = some_logits(seed=5)
    expected = logits.clone()
    for token, count in Counter(COMPLETION).items():
        expected[0, token] -= presence + count * frequency
    penalties = {"presence_penalty": presence, "frequency_penalty": frequency}
    seq = a_seq(params_of(temperature=1.0, **penalties), completion=COMPLETION)

    assert_drawn_from(expected.softmax(-1)[0], draw_many(logits, seq))
    greedy = replace_params(seq, params_of(temperature=0, **penalties))
    assert expected[0].argsort(descending=True).tolist() == greedy_of(logits, greedy)


def test_penalties_of_a_fresh_prompt_are_none() -> None:
    """What the prompt repeats is not penalised by presence or frequency."""
    logits = some_logits(seed=6)
    seq = a_seq(params_of(temperature=0, presence_penalty=2.0, frequency_penalty=2.0))

    assert logits[0].argsort(descending=True).tolist() == greedy_of(logits, seq)


def test_bias_is_added_to_its_logits() -> None:
    """A biased token's logit moves by the bias, before anything else."""
    logits = some_logits(seed=7)
    expected = logits.clone()
    expected[0, 3] += 2.5
    expected[0, 8] -= 100.0
    seq = a_seq(params_of(logit_bias=((3, 2.5), (8, -100.0))))

    assert_drawn_from(expected.softmax(-1)[0], draw_many(logits, seq))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_min_tokens_hold_back_every_end(temperature: float) -> None:
    """Until `min_tokens` there is neither an end-of-sequence nor a stop token; then there is."""
    logits = some_logits(seed=8)
    logits[0, [2, 5, 13]] = torch.tensor([9.0, 9.5, 10.0])
    params = params_of(min_tokens=3, stop_token_ids=(13,), temperature=temperature)

    early = draw_many(logits, a_seq(params, completion=(1, 1)))
    late = draw_many(logits, a_seq(params, completion=(1, 1, 1)))

    assert not {2, 5, 13} & early.keys()
    assert 13 == late.most_common(1)[0][0]


def mixed_batch(seed: int) -> tuple[torch.Tensor, list[Sequence]]:
    """Rows under every kind of parameters, greedy among them."""
    cases = [*ORACLE_CASES.values(), {"temperature": 0.0}, {"min_tokens": 9}]
    seqs = [
        a_seq(params_of(seed=31 * seed + row, **case), completion=COMPLETION[: row % 5])
        for row, case in enumerate(cases)
    ]
    return some_logits(len(cases), seed), seqs


@pytest.mark.parametrize("seed", range(8))
def test_a_token_is_the_same_alone_and_in_a_crowd(seed: int) -> None:
    """Neighbours, their number and the order of the rows change nothing."""
    logits, seqs = mixed_batch(seed)
    sampler = Sampler(EOS)

    alone = [tokens_of(sampler(logits[[row]], [seq]))[0] for row, seq in enumerate(seqs)]

    assert alone == tokens_of(sampler(logits.clone(), seqs))
    order = torch.randperm(len(seqs), generator=torch.Generator().manual_seed(seed)).tolist()
    shuffled = tokens_of(sampler(logits[order], [seqs[row] for row in order]))
    assert [alone[row] for row in order] == shuffled


@pytest.mark.parametrize("spread", [0.1, 3.0])
def test_a_large_vocabulary_does_not_change_that(spread: float) -> None:
    """Some rows are cut among few tokens and some among all; sums are those of the row alone."""
    _, seqs = mixed_batch(seed=1)
    generator = torch.Generator().manual_seed(8)
    logits = spread * torch.randn(len(seqs), 40_001, generator=generator)
    sampler = Sampler(EOS)

    alone = [tokens_of(sampler(logits[[row]], [seq]))[0] for row, seq in enumerate(seqs)]

    assert alone == tokens_of(sampler(logits.clone(), seqs))


def test_a_draw_depends_on_seed_and_index_alone() -> None:
    """The same seed and index give the same token; another of either gives other tokens."""
    logits = torch.zeros(1, VOCAB_SIZE)

    def tokens(seed: int) -> list[int]:
        completions = [tuple([1] * index) for index in range(40)]
        seqs = [a_seq(params_of(seed=seed), completion=ids) for ids in completions]
        return tokens_of(Sampler(EOS)(logits.repeat(len(seqs), 1), seqs))

    first = tokens(seed=1)
    assert first == tokens(seed=1)
    assert len(set(first)) > 15
    assert all(sum(map(int.__eq__, first, tokens(seed))) < 10 for seed in range(2, 12))


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_not_finite_fails_alone(poison: float, temperature: float) -> None:
    """One bad value fails its own row; the others get what they get without it."""
    logits = some_logits(rows=5, seed=9)
    seqs = [a_seq(params_of(seed=row, temperature=temperature)) for row in range(5)]
    expected = Sampler(EOS)(logits.clone(), seqs)
    expected[2] = Sampled(-1, "the logits are not finite")
    logits[2, 17] = poison

    assert expected == Sampler(EOS)(logits, seqs)


def test_a_row_without_any_token_fails_alone() -> None:
    """When every token is ruled out there is none to choose."""
    logits = some_logits(rows=2, seed=10)
    logits[0] = float("-inf")

    dead, alive = Sampler(EOS)(logits, [a_seq(params_of())] * 2)

    assert (-1, "the logits are not finite") == (dead.token_id, dead.error)
    assert alive.error is None


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.0},
        {"temperature": 0.7},
        {"temperature": 1.0, "top_p": 0.8},
        {"temperature": 0.7, "repetition_penalty": 1.5},
        {"temperature": 0.0, "presence_penalty": 1.0, "frequency_penalty": 0.5},
    ],
)
def test_rows_after_guesses_are_those_of_later_steps(params: dict[str, float]) -> None:
    """A row so many tokens ahead gives what the sequence would get with these tokens in it."""
    params_ = params_of(min_tokens=7, logit_bias=((3, 1.5), (5, 9.0)), **params)
    later = [a_seq(params_, completion=(4, 5, 6, 7, 8)[:count]) for count in (3, 4, 5)]
    logits = some_logits(3)
    # what is guessed would be chosen again, but for a penalty
    logits[1:, 7] = logits[1:].amax(-1) + 0.1

    one_by_one = [Sampler(EOS)(logits[row : row + 1].clone(), [later[row]])[0] for row in range(3)]

    assert one_by_one == Sampler(EOS)(logits.clone(), [later[0]] * 3, [(), (7,), (7, 8)])


def test_guesses_count_as_tokens_before_an_end() -> None:
    """With one token to go before it may end, it may after a guess."""
    seq = a_seq(params_of(min_tokens=4, temperature=0.0), completion=(4, 5, 6))
    eos = max(EOS)
    logits = some_logits(2)
    logits[:, eos] = logits.amax() + 1

    now, after_a_guess = Sampler(EOS)(logits, [seq] * 2, [(), (7,)])

    assert now.token_id != eos == after_a_guess.token_id


@pytest.mark.parametrize(
    "params", [{"temperature": 0.0}, {"temperature": 0.7}, {"temperature": 0.7, "min_tokens": 4}]
)
def test_a_row_after_an_unknown_token_is_that_of_the_next_step(params: dict[str, float]) -> None:
    """What is drawn depends on how many tokens there are, and not on what they are."""
    params_ = params_of(logit_bias=((3, 1.5),), **params)
    known, unknown = (
        [a_seq(params_, completion=(4, 5, 6)[:count]) for _ in range(40)] for count in (3, 2)
    )
    for seqs in (known, unknown):
        for seed, seq in enumerate(seqs):
            seq.sampling = replace(params_, seed=seed)
    logits = some_logits(40)

    drawn = Sampler(EOS).draw(logits.clone(), unknown, num_unknown=1)

    assert Sampler(EOS)(logits.clone(), known) == drawn.sampled()
    assert Sampler(EOS)(logits.clone(), unknown) != drawn.sampled() or not params["temperature"]
