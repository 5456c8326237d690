"""Prompt tokens beside streams: as many as keep the streams' pace."""

from __future__ import annotations

import pytest
from scheduler_bench import Bench, Runner, a_seq, with_encoder, with_prompt

from streamwell.core.types import SamplingParams
from streamwell.engine.budget import share_budget
from streamwell.engine.loop import EngineLoop
from streamwell.engine.pace import FIRST_TOKENS, LEAST_TOKENS, Demand, Pace
from streamwell.engine.sequence import Chunk, Sequence, Step

#: How many times as long a step may take.
STRETCH = 2.5
#: A stream beside one long prompt.
LONG = Demand(num_streams=1, num_prompts=1, longest_prompt=5000)


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
        num_tokens = pace.prefill_limit(LONG) or 0
        pace.observe(num_streams, num_tokens, decode_s + token_s * num_tokens)
        pace.observe(num_streams, 0, decode_s)

    mixed_s = decode_s + token_s * (pace.prefill_limit(LONG) or 0)

    assert STRETCH * 0.9 < mixed_s / decode_s <= STRETCH


def test_it_learns_from_prefills_alone_too() -> None:
    """A prompt token's cost shows in steps without streams, a decode's in those without prompts."""
    pace = Pace(STRETCH)
    pace.observe(0, 200, 1.0)
    pace.observe(1, 0, 0.1)

    assert int((STRETCH - 1) * 0.1 / 0.005) == pace.prefill_limit(LONG)


def test_short_prompts_alone_do_not_make_tokens_look_dear() -> None:
    """Most of what such a step takes is what any step takes: the weights are read."""
    pace = Pace(STRETCH)
    decode_s, token_s = 0.015, 0.00006
    pace.observe(1, 0, decode_s)
    pace.observe(0, 500, decode_s + 500 * token_s)
    limit = pace.prefill_limit(LONG)
    for _ in range(3):
        pace.observe(0, 10, decode_s + 10 * token_s)

    assert limit == pytest.approx((STRETCH - 1) * decode_s / token_s, abs=1)
    assert limit == pytest.approx(pace.prefill_limit(LONG), abs=1)


def test_the_first_streams_have_a_step_to_themselves() -> None:
    """It tells how long they take; what a prompt's token takes is guessed until one is computed."""
    pace = Pace(STRETCH)
    assert pace.prefill_limit(LONG) == 0
    pace.observe(4, 0, 0.1)

    assert FIRST_TOKENS == pace.prefill_limit(LONG)
    assert 3 * FIRST_TOKENS == pace.prefill_limit(Demand(2, 7, 5000))


def test_prompts_never_stop() -> None:
    """However slow prompts are beside decodes, some tokens of them are computed in every step."""
    pace = Pace(STRETCH)
    pace.observe(1, 0, 0.001)
    pace.observe(0, 1, 10.0)

    assert LEAST_TOKENS == pace.prefill_limit(LONG)


def a_pace_that_knows(decode_s: float = 0.1, token_s: float = 0.005) -> Pace:
    """Short prompts, of up to four steps' 250 tokens, may take a step of 0.6 s."""
    pace = Pace(STRETCH, short_step_s=0.6, max_num_batched_tokens=250)
    pace.observe(0, 200, 200 * token_s)
    pace.observe(1, 0, decode_s)
    return pace


def test_a_crowd_waits_for_less_even_streams() -> None:
    """With three prompts behind the first for each stream, three times as many are computed."""
    pace = a_pace_that_knows()
    alone = pace.prefill_limit(LONG)
    assert alone

    assert alone == pace.prefill_limit(Demand(10, 10, 5000))
    assert 3 * alone == pace.prefill_limit(Demand(2, 7, 5000))


def test_short_prompts_get_a_step_of_their_time() -> None:
    """If all are short, as many tokens as fill the time of such a step, or for several of two."""
    pace = a_pace_that_knows()

    assert int((0.6 - 0.1) / 0.005) == pace.prefill_limit(Demand(1, 1, 1000))
    assert int((2 * 0.6 - 0.1) / 0.005) == pace.prefill_limit(Demand(8, 3, 1000))
    assert int((STRETCH - 1) * 0.1 / 0.005) == pace.prefill_limit(Demand(1, 2, 1001))


def test_a_step_for_short_prompts_is_no_shorter_than_for_long_ones() -> None:
    """Where streams alone take long already, the stretch counts; and where a crowd waits."""
    slow, fast = a_pace_that_knows(decode_s=0.5), a_pace_that_knows()

    assert int((STRETCH - 1) * 0.5 / 0.005) == slow.prefill_limit(Demand(1, 1, 10))
    assert fast.prefill_limit(Demand(1, 12, 5000)) == fast.prefill_limit(Demand(1, 12, 10))


def test_prompts_are_measured_without_what_the_cache_had() -> None:
    """A long conversation's new turn is short."""
    bench = Bench([with_prompt("first turn", range(40), max_tokens=1)], max_model_len=64)
    bench.drain()
    bench.scheduler.add(a_seq("stream"))
    bench.step()
    bench.scheduler.add(with_prompt("second turn", range(46)))
    bench.plan()

    assert Demand(1, 1, 6) == bench.scheduler.demand


def test_a_long_prompt_is_known_in_its_first_step() -> None:
    """The pace is asked when it is admitted; who finds no place is computed later."""
    bench, pace = Bench(max_num_seqs=2, max_model_len=64), Watched()
    bench.scheduler.add(a_seq("stream"))
    bench.step()
    bench.scheduler.add(a_seq("long", 30))
    bench.scheduler.add(a_seq("longer", 40))
    bench.scheduler.schedule(pace.prefill_limit)

    assert [Demand(1, 2, 30)] == pace.demands


def test_what_a_limit_allows_is_not_owed() -> None:
    """A crowd's step leaves the next ones their limit; more than the limit is taken off them."""
    pace, crowd = a_pace_that_knows(), Demand(1, 9, 5000)
    alone, crowded = pace.prefill_limit(LONG), pace.prefill_limit(crowd)
    assert alone
    assert crowded

    pace.observe(1, crowded, 0.1 + crowded * 0.005)
    assert alone == pace.prefill_limit(LONG)
    pace.observe(1, alone + 7, 0.1 + (alone + 7) * 0.005)
    assert alone - 7 == pace.prefill_limit(LONG)


class Watched(Pace):
    """Keeps what it was asked, and which steps were free."""

    def __init__(self) -> None:
        super().__init__(STRETCH)
        self.demands: list[Demand] = []
        self.frees: list[bool] = []

    def prefill_limit(self, demand: Demand) -> int | None:
        self.demands.append(demand)
        return super().prefill_limit(demand)

    def observe(
        self, num_decodes: int, num_prefill_tokens: int, seconds: float, *, is_free: bool = False
    ) -> None:
        self.frees.append(is_free)
        super().observe(num_decodes, num_prefill_tokens, seconds, is_free=is_free)


def test_the_loop_tells_who_waits() -> None:
    """Before each step the pace knows who streams, and whose prompts wait, admitted or not."""
    bench, pace = Bench(max_num_seqs=2), Watched()
    loop = EngineLoop(bench.scheduler, Runner(), bench.pool, pace=pace)
    bench.scheduler.add(a_seq("a"))
    loop.step()
    for name, num_tokens in {"b": 3, "c": 9, "d": 4}.items():
        bench.scheduler.add(a_seq(name, num_tokens))
    loop.step()
    loop.step()

    assert [Demand(0, 1, 4), Demand(1, 3, 3), Demand(1, 3, 3)] == pace.demands


def test_what_goes_on_owes_nothing_in_the_loop() -> None:
    """The step in which an answer is computed anew beside a stream is free, and no other."""
    bench, pace = Bench(max_model_len=64), Watched()
    loop = EngineLoop(bench.scheduler, Runner(), bench.pool, pace=pace)
    bench.scheduler.add(a_seq("a", max_tokens=40))
    loop.step()
    resumed = a_seq("resumed", 30)
    resumed.num_prompt_tokens = 9
    bench.scheduler.add(resumed)
    loop.step()
    loop.step()

    assert [False, True, False] == pace.frees


def test_an_encoders_input_counts() -> None:
    """What is left to compute of a sequence is both what its encoder and what its decoder reads."""
    bench = Bench([with_encoder("a", 9, 2)], max_input_len=16, max_num_batched_tokens=64)
    bench.scheduler.schedule()

    assert Demand(0, 1, 11) == bench.scheduler.demand


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

    assert int((STRETCH - 1) * 0.1 / 0.001) == pace.prefill_limit(LONG)


def test_no_stretch_is_no_limit() -> None:
    """Zero leaves prompts to the token budget, whatever they cost."""
    pace = Pace(0.0)
    pace.observe(1, 0, 0.001)
    pace.observe(0, 1, 10.0)

    assert pace.prefill_limit(LONG) is None


def test_guesses_are_not_prompts() -> None:
    """A step that guesses behind a stream's token still only decodes; a prompt's tokens count."""
    stream, prompt = a_sequence(10, 9), a_sequence(500, 0)
    guessing, prefilling = Chunk(stream, 9, 4, (5, 6, 7)), Chunk(prompt, 0, 30)

    assert (1, 0) == (Step((guessing,)).num_decodes, Step((guessing,)).num_prefill_tokens)
    mixed = Step((guessing, prefilling))
    assert (1, 30) == (mixed.num_decodes, mixed.num_prefill_tokens)


def test_steps_of_few_tokens_may_tell_nothing() -> None:
    """Where launching kernels takes longer than computing: a short prompt does not look dear."""
    pace = Pace(STRETCH, least_told=256)
    launch_s, decode_s, token_s = 0.01, 0.001, 0.00001
    pace.observe(1, 0, decode_s)
    assert 4 * 256 == pace.prefill_limit(LONG)
    pace.observe(1, 5, launch_s)
    assert 4 * 256 == pace.prefill_limit(LONG)
    pace.observe(1, 1000, launch_s + 1000 * token_s)

    cost_s = (launch_s + 1000 * token_s - decode_s) / 1000
    assert int((STRETCH - 1) * decode_s / cost_s) == pace.prefill_limit(LONG)
