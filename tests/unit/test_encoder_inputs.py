"""Sequences with an encoder: what it reads is computed once, in one go, and held until the end."""

from __future__ import annotations

import pytest
from scheduler_bench import Bench, shape_of, with_encoder

from streamwell.engine.pace import FIRST_TOKENS, Demand, Pace
from streamwell.engine.sequence import Sequence, Step


def a_bench(*seqs: Sequence, num_blocks: int = 40, budget: int = 16) -> Bench:
    """Inputs of up to 20 tokens; answers of up to 31 and what they begin with."""
    return Bench(
        seqs, num_blocks=num_blocks, max_num_batched_tokens=budget, max_input_len=20, max_num_seqs=4
    )


def inputs_of(step: Step) -> list[tuple[str, int]]:
    """Who has something read, and how much."""
    return [(c.seq.request_id, len(c.encoder_ids)) for c in step.chunks if c.encoder_ids]


def test_an_input_is_read_with_the_first_token() -> None:
    """Once: the second step decodes."""
    bench = a_bench(with_encoder("a", 5))

    first = bench.plan()
    bench.finish(first)
    second = bench.plan()

    assert ([("a", 5)], [("a", 0, 1)], 6) == (inputs_of(first), shape_of(first), first.num_tokens)
    assert ([], [("a", 1, 1)], 1) == (inputs_of(second), shape_of(second), second.num_tokens)
    assert ((0, 6), (1, 0)) == tuple((s.num_decodes, s.num_prefill_tokens) for s in (first, second))


def test_inputs_share_a_step_as_far_as_it_has_room() -> None:
    """An input that does not fit beside the others waits; one after it that fits does not."""
    bench = a_bench(*(with_encoder(name, n) for name, n in (("a", 6), ("b", 12), ("c", 7))))

    assert [("a", 6), ("c", 7)] == inputs_of(bench.plan())


@pytest.mark.parametrize("num_decodes", [0, 2])
def test_the_first_in_rank_may_exceed_the_budget(num_decodes: int) -> None:
    """An input longer than the budget is read all the same, and others wait for the next step."""
    bench = a_bench(budget=8)
    for number in range(num_decodes):
        bench.scheduler.add(with_encoder(f"d{number}", 1))
        bench.step()
    bench.scheduler.add(with_encoder("long", 20))
    bench.scheduler.add(with_encoder("short", 2))

    first = bench.plan()
    bench.finish(first)

    assert ([("long", 20)], 21 + num_decodes) == (inputs_of(first), first.num_tokens)
    assert [("short", 2)] == inputs_of(bench.plan())


def test_what_follows_a_resumed_prefix_is_cut_as_ever() -> None:
    """Only the first chunk carries the input."""
    bench = a_bench(with_encoder("a", 10, num_tokens=24))
    chunks = []
    while not (chunks and chunks[-1].is_sampled):
        step = bench.plan()
        chunks += step.chunks
        if not chunks[-1].is_sampled:
            bench.finish(step)

    assert [(0, 6, 10), (6, 16, 0), (22, 2, 0)] == [
        (c.start, c.num_tokens, len(c.encoder_ids)) for c in chunks
    ]


def test_blocks_of_an_input_are_held_to_the_end() -> None:
    """Three for the input and one for the token; all of them come back together."""
    bench = a_bench(with_encoder("a", 9), with_encoder("b", 9))
    bench.step()

    assert 4 * 2 == bench.pool.num_used
    assert bench.scheduler.abort("a")
    bench.scheduler.check_integrity()
    assert 4 == bench.pool.num_used
    bench.drain()
    assert 0 == bench.pool.num_used


def test_a_preempted_sequence_has_its_input_read_again() -> None:
    """Preemption drops what the encoder left, too."""
    bench = a_bench(
        with_encoder("old", 8, max_tokens=25), with_encoder("new", 8, max_tokens=25), num_blocks=13
    )
    read = []
    while bench.scheduler.has_work:
        step = bench.plan()
        read += inputs_of(step)
        bench.finish(step)

    assert [("old", 8), ("new", 8), ("new", 8)] == read
    assert 1 == bench.scheduler.num_preemptions


def test_equal_inputs_share_nothing() -> None:
    """What a decoder caches depends on the input, which no key tells: nothing is looked up."""
    bench = a_bench(*(with_encoder(name, 9, num_tokens=9) for name in "ab"))

    outputs = bench.drain()

    assert {0} == {output.num_cached_tokens for output in outputs}
    assert (0, 0) == (bench.scheduler.num_queried_tokens, bench.pool.num_cached)


@pytest.mark.parametrize(
    ("max_input_len", "num_input_tokens", "is_fine"),
    [(20, 20, True), (20, 21, False), (20, 0, False), (0, 0, True), (0, 1, False)],
)
def test_an_input_that_does_not_fit_the_model_is_refused(
    max_input_len: int, num_input_tokens: int, is_fine: bool
) -> None:
    """An encoder needs something to read, not too much; a decoder has no encoder."""
    bench = Bench(max_input_len=max_input_len)
    seq = with_encoder("a", num_input_tokens)
    if is_fine:
        bench.scheduler.add(seq)
    else:
        with pytest.raises(ValueError, match=f"input of {num_input_tokens} tokens"):
            bench.scheduler.add(seq)
    assert is_fine == bench.scheduler.has_work


def test_a_cache_that_cannot_hold_input_and_answer_is_refused() -> None:
    """8 blocks for the longest answer and 5 for the longest input."""
    with pytest.raises(ValueError, match="cannot hold"):
        a_bench(num_blocks=12)


def test_what_was_read_beyond_the_pace_is_owed() -> None:
    """After an input longer than its limit, streams have steps to themselves."""
    pace = Pace(2.5, short_step_s=0.2, max_num_batched_tokens=64)
    nobody, somebody = Demand(num_streams=3), Demand(3, 1, longest_prompt=65)
    pace.observe(3, 0, 0.1)
    assert FIRST_TOKENS == pace.prefill_limit(somebody)
    pace.observe(3, 3 * FIRST_TOKENS + 10, 0.1 + 0.001 * (3 * FIRST_TOKENS + 10))
    even = int(1.5 * 0.1 / 0.001)

    limits = []
    for demand in (nobody, somebody):
        limits.append(pace.prefill_limit(demand))
        pace.observe(3, 0, 0.1)

    assert [even - 2 * FIRST_TOKENS - 10, even] == limits


def test_without_streams_nothing_is_owed() -> None:
    """There was nobody to hold up."""
    pace, waiting = Pace(2.5), Demand(3, 1, longest_prompt=9)
    num_tokens = 5 * FIRST_TOKENS
    seconds = 0.1 + 0.001 * num_tokens
    pace.observe(3, 0, 0.1)
    pace.observe(3, num_tokens, seconds)
    assert pace.prefill_limit(waiting) == 0

    pace.observe(0, num_tokens, seconds)

    assert pace.prefill_limit(waiting) == pytest.approx(1.5 * 0.1 / 0.001, abs=1)


def test_an_input_waits_while_the_pace_allows_nothing() -> None:
    """The rule that lets the first in rank exceed the budget counts from one token on."""
    bench = a_bench(with_encoder("a", 1))
    bench.step()
    bench.scheduler.add(with_encoder("b", 9))

    steps = [bench.scheduler.schedule(lambda _, limit=limit: limit) for limit in (0, 1)]

    assert [[], [("b", 9)]] == [inputs_of(step) for step in steps if step is not None]
