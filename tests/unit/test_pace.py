"""Prompt tokens beside streams: as many as keep the streams' pace."""

from __future__ import annotations

import pytest
from scheduler_bench import Bench, Runner, a_seq

from streamwell.core.types import SamplingParams
from streamwell.engine.budget import share_budget
from streamwell.engine.loop import EngineLoop
from streamwell.engine.pace import FIRST_TOKENS, LEAST_TOKENS, Pace
from streamwell.engine.sequence import Chunk, Sequence, Step

#: How many times as long a step may take.
STRETCH = 2.5


def a_sequence(num_tokens: int, num_computed: int) -> Sequence:
    seq = Sequence("r", [5] * num_tokens, SamplingParams(max_tokens=9))
    seq.num_computed_tokens = num_computed
    return seq


@pytest.mark.parametrize("num_streams", [1, 8, 32])
def test_a_mixed_step_keeps_the_stretch(num_streams: int) -> None:
    """On a machine of constant speed, a mixed step soon takes the stretch and no more."""
    pace = Pace(STRETCH)
    decode_s, token_s = 0.05 + 0.002 * num_streams, 0.0035
    for _ in range(120):
        num_tokens = pace.prefill_limit() or 0
        pace.observe(num_streams, num_tokens, decode_s + token_s * num_tokens)
        pace.observe(num_streams, 0, decode_s)

    mixed_s = decode_s + token_s * (pace.prefill_limit() or 0)

    assert STRETCH * 0.9 < mixed_s / decode_s <= STRETCH


def test_it_learns_from_prefills_alone_too() -> None:
    """A prompt token's cost shows in steps without streams, a decode's in those without prompts."""
    pace = Pace(STRETCH)
    pace.observe(0, 200, 1.0)
    pace.observe(1, 0, 0.1)

    assert int((STRETCH - 1) * 0.1 / 0.005) == pace.prefill_limit()


def test_short_prompts_alone_do_not_make_tokens_look_dear() -> None:
    """Most of what such a step takes is what any step takes: the weights are read."""
    pace = Pace(STRETCH)
    decode_s, token_s = 0.015, 0.00006
    pace.observe(1, 0, decode_s)
    pace.observe(0, 500, decode_s + 500 * token_s)
    limit = pace.prefill_limit()
    for _ in range(3):
        pace.observe(0, 10, decode_s + 10 * token_s)

    assert limit == pytest.approx((STRETCH - 1) * decode_s / token_s, abs=1)
    assert limit == pytest.approx(pace.prefill_limit(), abs=1)


def test_before_it_knows_anything_it_guesses() -> None:
    """A first step has no past; neither has a server that never only decoded."""
    pace = Pace(STRETCH)
    assert FIRST_TOKENS == pace.prefill_limit()
    pace.observe(4, 64, 0.3)
    assert FIRST_TOKENS == pace.prefill_limit()


def test_prompts_never_stop() -> None:
    """However slow prompts are beside decodes, some tokens of them are computed in every step."""
    pace = Pace(STRETCH)
    pace.observe(1, 0, 0.001)
    pace.observe(0, 1, 10.0)

    assert LEAST_TOKENS == pace.prefill_limit()


def test_a_crowd_waits_for_less_even_streams() -> None:
    """With three prompts behind the first for each stream, three times as many are computed."""
    pace = Pace(STRETCH)
    pace.observe(0, 200, 1.0)
    pace.observe(1, 0, 0.1)
    alone = pace.prefill_limit()
    assert alone

    assert alone == pace.prefill_limit(0.9)
    assert 3 * alone == pace.prefill_limit(3.0)


class Watched(Pace):
    """Tells which steps owed nothing."""

    def __init__(self) -> None:
        super().__init__(STRETCH)
        self.is_free: list[bool] = []

    def observe(
        self, num_decodes: int, num_prefill_tokens: int, seconds: float, *, is_free: bool = False
    ) -> None:
        self.is_free.append(is_free)


def test_what_a_crowd_was_given_is_not_owed() -> None:
    """Three prompts beside one stream owe nothing for their step; fewer beside two streams do."""
    bench, pace = Bench(max_num_seqs=2), Watched()
    loop = EngineLoop(bench.scheduler, Runner(), bench.pool, pace=pace)
    bench.scheduler.add(a_seq("a"))
    loop.step()
    for name in "bcd":
        bench.scheduler.add(a_seq(name))

    while loop.has_work:
        loop.step()

    crowded = pace.is_free.index(True)
    assert crowded == 1
    assert not any(pace.is_free[crowded + 1 :])


def test_the_limit_counts_beside_decodes_only() -> None:
    """With a stream running the prompt gets the limit; without, all of the budget."""
    stream, prompt = a_sequence(10, 9), a_sequence(500, 0)

    assert {stream: 1, prompt: 30} == share_budget([stream, prompt], 256, 30)
    assert {prompt: 256} == share_budget([prompt], 256, 30)


def test_an_answer_that_goes_on_is_not_held_back() -> None:
    """What was cut in mid-answer is computed anew at full speed beside the streams."""
    stream, resumed = a_sequence(10, 9), a_sequence(500, 0)
    resumed.num_prompt_tokens = 400

    assert {stream: 1, resumed: 255} == share_budget([stream, resumed], 256, 30)
    mixed = Step((Chunk(stream, 9, 1), Chunk(resumed, 0, 255)))
    assert mixed.resumes
    assert not Step((Chunk(stream, 9, 1), Chunk(a_sequence(500, 0), 0, 30))).resumes


def test_what_an_answer_needs_to_go_on_is_not_owed() -> None:
    """Prompts that come next get what they would have got."""
    pace = Pace(STRETCH)
    pace.observe(1, 0, 0.1)
    pace.observe(1, 255, 0.1 + 0.255, is_free=True)

    assert int((STRETCH - 1) * 0.1 / 0.001) == pace.prefill_limit()


def test_no_stretch_is_no_limit() -> None:
    """Zero leaves prompts to the token budget, whatever they cost."""
    pace = Pace(0.0)
    pace.observe(1, 0, 0.001)
    pace.observe(0, 1, 10.0)

    assert pace.prefill_limit() is None


def test_guesses_are_not_prompts() -> None:
    """A step that guesses behind a stream's token still only decodes; a prompt's tokens count."""
    stream, prompt = a_sequence(10, 9), a_sequence(500, 0)
    guessing, prefilling = Chunk(stream, 9, 4, (5, 6, 7)), Chunk(prompt, 0, 30)

    assert (1, 0) == (Step((guessing,)).num_decodes, Step((guessing,)).num_prefill_tokens)
    mixed = Step((guessing, prefilling))
    assert (1, 30) == (mixed.num_decodes, mixed.num_prefill_tokens)
