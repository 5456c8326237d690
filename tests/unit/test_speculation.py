"""Guessed tokens: where they come from, which of them hold, and when there are none."""

from __future__ import annotations

import pytest
from scheduler_bench import EOS, OTHER, Bench, Done, with_prompt

from streamwell.core.types import FinishReason, GenerateRequest, SamplingParams
from streamwell.engine.draft_cost import DraftCost
from streamwell.engine.drafter import NgramDrafter
from streamwell.engine.loop import EngineLoop
from streamwell.engine.messages import Add
from streamwell.engine.prompt_lookup import PromptLookup
from streamwell.engine.sequence import Chunk, Sampled, Sequence, SequenceOutput, Step

#: Ends as it begins, so the next tokens are guessed to be 4, 5, 6, 1, ...
PROMPT = [1, 20, 3, 4, 5, 6, 1, 20, 3]


@pytest.mark.parametrize(
    ("token_ids", "expected"),
    [
        ([], ()),
        ([1, 2], ()),
        ([1, 2, 3], ()),
        ([1, 2, 3, 4, 5, 6], ()),
        ([1, 2, 3, 9, 2, 3], ()),
        ([1, 2, 3, 9, 1, 2, 3], (9, 1, 2, 3)),
        ([1, 2, 3, 9, 8, 7, 6, 5, 1, 2, 3], (9, 8, 7, 6)),
        ([1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3], (8, 1, 2, 3)),
        ([7, 7, 7, 7], (7,)),
    ],
)
def test_a_guess_is_what_followed_last_time(
    token_ids: list[int], expected: tuple[int, ...]
) -> None:
    """After the latest earlier occurrence of the last three ids, at most what was asked for."""
    assert expected == PromptLookup().propose(token_ids, 4)


def test_an_index_grows_with_its_sequence() -> None:
    """Asked at every length, it says what a new one says."""
    token_ids = [1, 2, 3, 1, 2, 3, 1, 4, 1, 2, 3, 1, 2, 3, 1, 4]
    lookup, grown = PromptLookup(), []
    for token_id in token_ids:
        grown.append(token_id)
        assert PromptLookup().propose(list(grown), 3) == lookup.propose(grown, 3)
        assert lookup.propose(grown, 3) == lookup.propose(grown, 3)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [([9, 5, 6], [9]), ([4, 9, 6], [4, 9]), ([4, 5, 9], [4, 5, 9]), ([9, 9, 9], [9])],
)
def test_tokens_hold_up_to_the_first_wrong_guess(chosen: list[int], expected: list[int]) -> None:
    """What was chosen after a wrong guess has a past that never was."""
    seq = with_prompt("a", PROMPT)

    accepted = Chunk(seq, 8, 3, (4, 5)).accepted(tuple(Sampled(token) for token in chosen))

    assert expected == accepted


def test_an_error_after_a_right_guess_is_left_for_the_next_step() -> None:
    """The tokens before it hold; if it comes again, it is the first of its step."""
    seq = with_prompt("a", PROMPT)
    sampled = (Sampled(4), Sampled(-1, "not finite"), Sampled(7))

    assert [4] == Chunk(seq, 8, 3, (4, 5)).accepted(sampled)


def speculative(seq: Sequence, *, num_blocks: int = 32, budget: int = 64, ngram: int = 3) -> Bench:
    bench = Bench(
        [seq],
        num_blocks=num_blocks,
        max_num_batched_tokens=budget,
        num_speculative_tokens=ngram,
        drafter=NgramDrafter(),
    )
    bench.finish(bench.plan(), a=4)  # the prompt, and a first token
    return bench


class AlwaysOther:
    """Guesses that nothing else follows."""

    def fill(self, step: Step) -> Step:
        return Step(tuple(chunk.guessed((OTHER,) * chunk.num_drafts) for chunk in step.chunks))


class SlowDraftModel:
    """Guesses nothing, and computes the first tokens of each sequence only."""

    def __init__(self, num_tokens: int) -> None:
        self.num_tokens = num_tokens

    def fill(self, step: Step) -> Step:
        return Step(tuple(chunk.guessed((), self.num_tokens) for chunk in step.chunks))


def take(bench: Bench, *token_ids: int) -> list[SequenceOutput]:
    """A step in which these are chosen, one after the other."""
    return apply(bench, bench.plan(), *token_ids)


def apply(bench: Bench, step: Step, *token_ids: int) -> list[SequenceOutput]:
    outputs = bench.scheduler.apply({"a": tuple(map(Sampled, token_ids))}, step)
    bench.scheduler.check_integrity()
    return outputs


def test_right_guesses_are_tokens_of_one_step() -> None:
    """The guesses follow the last token in its chunk; then come those that were right, and one."""
    bench = speculative(with_prompt("a", PROMPT))
    step = bench.plan()

    assert [(9, 4, (5, 6, 1))] == [(c.start, c.num_tokens, c.draft_ids) for c in step.chunks]
    assert [[4, 5, 6, 1]] == [chunk.token_ids for chunk in step.chunks]
    assert [SequenceOutput("a", (5, 6, 8))] == apply(bench, step, 5, 6, 8, 20)
    assert [(12, 1)] == [(c.start, c.num_tokens) for c in bench.plan().chunks]
    assert (3, 2) == (bench.scheduler.num_draft_tokens, bench.scheduler.num_accepted_tokens)


def test_wrong_guesses_cost_nothing_but_their_computing() -> None:
    """The sequence goes on after the token that was chosen, as without them."""
    bench = speculative(with_prompt("a", PROMPT))

    assert [SequenceOutput("a", (9,))] == take(bench, 9, 6, 1, 20)
    assert [(10, 1)] == [(c.start, c.num_tokens) for c in bench.plan().chunks]


def test_the_end_may_be_a_guess() -> None:
    """What was right after an end of sequence is not said."""
    bench = speculative(with_prompt("a", [1, 20, 3, 4, EOS, 6, 1, 20, 3]))

    assert [SequenceOutput("a", (EOS,), FinishReason.STOP)] == take(bench, EOS, 6, 1, 20)
    assert 0 == bench.pool.num_used


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, 3),
        ({"max_tokens": 4}, 2),
        ({"max_tokens": 2}, 0),
        ({"temperature": 1.0, "logit_bias": ((5, 1.0),), "min_tokens": 3}, 3),
        ({"repetition_penalty": 1.1}, 3),
    ],
)
def test_guesses_keep_to_what_was_asked(params: dict[str, object], expected: int) -> None:
    """No more than may still be said."""
    (chunk,) = speculative(with_prompt("a", PROMPT, **params)).plan().chunks  # type: ignore[arg-type]

    assert expected == len(chunk.draft_ids)


@pytest.mark.parametrize(("num_before", "expected"), [(18, 3), (19, 2), (20, 1), (21, 0)])
def test_guesses_keep_to_the_context(num_before: int, expected: int) -> None:
    """A right guess and the token after it still fit."""
    prompt = [*range(100, 100 + num_before), *PROMPT]

    (chunk,) = speculative(with_prompt("a", prompt)).plan().chunks

    assert expected == len(chunk.draft_ids)


def test_guesses_take_only_what_is_left_of_the_budget() -> None:
    """Another's prompt comes before them."""
    bench = speculative(with_prompt("a", PROMPT), budget=9)
    bench.scheduler.add(with_prompt("b", range(100, 106)))

    assert [("a", 3), ("b", 6)] == [(c.seq.request_id, c.num_tokens) for c in bench.plan().chunks]


def test_guesses_preempt_nobody() -> None:
    """Without a free block for them there are none."""
    bench = speculative(with_prompt("a", PROMPT), num_blocks=8)
    bench.scheduler.add(with_prompt("b", range(100, 120)))  # the five blocks that are left

    a, _ = bench.plan().chunks

    assert () == a.draft_ids
    assert 0 == bench.scheduler.num_preemptions


def test_without_the_option_nothing_is_guessed() -> None:
    """Zero is off."""
    (chunk,) = speculative(with_prompt("a", PROMPT), ngram=0).plan().chunks

    assert ((), 1) == (chunk.draft_ids, chunk.num_tokens)


def test_a_plan_says_how_many_may_be_guessed() -> None:
    """With room for them; who guesses, and what, is not the scheduler's affair."""
    bench = Bench([with_prompt("a", PROMPT)], num_speculative_tokens=4)
    bench.step()

    (chunk,) = bench.plan().chunks

    assert (4, (), 1) == (chunk.num_drafts, chunk.draft_ids, chunk.num_tokens)
    assert bench.pool.blocks_for(chunk.end + 4) == len(chunk.seq.block_ids)


def test_wrong_guesses_become_fewer() -> None:
    """Of each sequence by itself."""
    bench = Bench(
        [with_prompt(name, PROMPT, max_tokens=40) for name in "ab"],
        max_model_len=64,
        num_speculative_tokens=4,
        drafter=AlwaysOther(),
    )
    bench.step()
    wanted = []
    for _ in range(6):
        step = bench.plan()
        wanted.append({chunk.seq.request_id: chunk.num_drafts for chunk in step.chunks})
        bench.finish(step, a=20)

    assert [4, 3, 2, 1, 1, 1] == [counts["a"] for counts in wanted]
    assert [4, 4, 4, 4, 4, 4] == [counts["b"] for counts in wanted]


@pytest.mark.parametrize(("num_drafted", "expected"), [(0, 0), (3, 0), (4, 4), (7, 4), (99, 8)])
def test_a_block_is_shared_when_the_draft_model_has_it_too(num_drafted: int, expected: int) -> None:
    """So whoever begins alike can be guessed for at once."""
    bench = Bench(
        [with_prompt("a", PROMPT)], num_speculative_tokens=4, drafter=SlowDraftModel(num_drafted)
    )
    bench.step()
    bench.scheduler.add(with_prompt("b", PROMPT))

    chunks = {chunk.seq.request_id: chunk for chunk in bench.plan().chunks}

    assert expected == chunks["b"].start == chunks["b"].seq.num_drafted_tokens


class Repeating:
    """A runner whose model says one token for ever; notes how much was guessed per step."""

    vocab_size = 300
    runs_ahead = False

    def __init__(self) -> None:
        self.num_drafts: list[int] = []

    def launch(self, step: Step) -> Done:
        self.num_drafts.append(sum(len(chunk.draft_ids) for chunk in step.chunks))
        return Done({c.seq.request_id: (Sampled(OTHER),) * c.num_sampled for c in step.chunks})

    def launch_next(self, step: Step) -> Done:
        raise NotImplementedError


def test_an_engine_first_times_a_step_without_guesses() -> None:
    """Then it guesses; who is told no costs does so at once."""
    wanted = []
    for cost in (None, DraftCost()):
        bench, runner = Bench(max_model_len=64, num_speculative_tokens=2), Repeating()
        drafter = AlwaysOther()
        loop = EngineLoop(bench.scheduler, runner, bench.pool, drafter=drafter, draft_cost=cost)
        sampling = SamplingParams(max_tokens=20)
        loop.handle(Add(GenerateRequest(request_id="a", prompt_ids=(1, 2), sampling=sampling)))
        for _ in range(3):
            loop.step()
        wanted.append(runner.num_drafts)

    assert [[0, 2, 2], [0, 0, 2]] == wanted
