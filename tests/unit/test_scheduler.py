"""What the scheduler decides, in small tables; `test_scheduler_walk` goes for the corners."""

from __future__ import annotations

from itertools import pairwise

import pytest
from scheduler_bench import EOS, OTHER, STOP_ID, Bench, a_seq, shape_of, with_prompt

from streamwell.core.types import FinishReason
from streamwell.engine.sequence import SequenceOutput


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"num_blocks": 7}, id="no room for one full sequence"),
        pytest.param({"max_num_batched_tokens": 7}, id="no budget for all decodes"),
    ],
)
def test_limits_that_could_starve_a_sequence_are_refused(limits: dict[str, int]) -> None:
    """With fewer blocks or less budget, some sequence might never go on."""
    with pytest.raises(ValueError, match=r"must be|cannot hold"):
        Bench(**limits)


@pytest.mark.parametrize(
    ("num_tokens", "is_fine"), [(0, False), (1, True), (31, True), (32, False)]
)
def test_a_prompt_leaves_room_for_a_token(num_tokens: int, is_fine: bool) -> None:
    """A prompt has at least one token and is shorter than the model's context."""
    bench = Bench()
    if is_fine:
        bench.scheduler.add(a_seq("a", num_tokens))
    else:
        with pytest.raises(ValueError, match=f"prompt of {num_tokens} tokens"):
            bench.scheduler.add(a_seq("a", num_tokens))
    assert is_fine == bench.scheduler.has_work


def test_nothing_to_do_is_no_step() -> None:
    """An idle scheduler plans nothing."""
    bench = Bench()

    assert bench.scheduler.schedule() is None
    assert not bench.scheduler.has_work


def test_the_crowd_is_counted_by_stream() -> None:
    """Prompts behind the first one, admitted or not, for each stream; nobody crowds without one."""
    bench = Bench(max_num_seqs=3)
    assert bench.scheduler.demand.crowd == 0
    for name in "ab":
        bench.scheduler.add(a_seq(name))
    assert bench.scheduler.demand.crowd == 0
    bench.step()
    assert bench.scheduler.demand.crowd == 0

    for name in "cdefg":
        bench.scheduler.add(a_seq(name))

    assert bench.scheduler.demand.crowd == (5 - 1) / 2


@pytest.mark.parametrize(
    ("params", "tokens", "expected"),
    [
        ({}, [OTHER, EOS], FinishReason.STOP),
        ({}, [OTHER] * 8, FinishReason.LENGTH),
        ({"max_tokens": 1}, [OTHER], FinishReason.LENGTH),
        ({"max_tokens": 1}, [EOS], FinishReason.STOP),
        ({"max_tokens": 99}, [OTHER] * 28, FinishReason.LENGTH),
        ({"ignore_eos": True}, [EOS] * 8, FinishReason.LENGTH),
        ({"stop_token_ids": (STOP_ID,)}, [OTHER, STOP_ID], FinishReason.STOP),
        ({"stop_token_ids": (EOS,), "ignore_eos": True}, [EOS], FinishReason.STOP),
        ({"min_tokens": 3}, [EOS, OTHER, EOS], FinishReason.STOP),
        ({"min_tokens": 3, "stop_token_ids": (STOP_ID,)}, [STOP_ID] * 3, FinishReason.STOP),
        ({"min_tokens": 99}, [EOS] * 8, FinishReason.LENGTH),
    ],
)
def test_a_sequence_ends_for_the_true_reason(
    params: dict[str, object], tokens: list[int], expected: FinishReason
) -> None:
    """It ends with exactly one reason, on the right token and not before."""
    bench = Bench([a_seq("a", **params)])

    reasons = [bench.step(a=token)[0].finish_reason for token in tokens]

    assert [*[None] * (len(tokens) - 1), expected] == reasons
    assert not bench.scheduler.has_work
    assert 0 == bench.pool.num_used


def test_an_error_ends_its_own_sequence() -> None:
    """The neighbours of a sequence that fails get their tokens as if nothing had happened."""
    bench = Bench([a_seq("a"), a_seq("b"), a_seq("c")])

    outputs = bench.step(b="not finite")

    assert [
        SequenceOutput("a", (OTHER,)),
        SequenceOutput("b", (), FinishReason.ERROR, "not finite"),
        SequenceOutput("c", (OTHER,)),
    ] == outputs
    assert ["a", "c"] == [chunk.seq.request_id for chunk in bench.plan().chunks]


@pytest.mark.parametrize("steps_before", [0, 1, 2])
def test_an_aborted_sequence_is_gone_at_once(steps_before: int) -> None:
    """Waiting, in its prefill or decoding: after `abort` it holds no block and never speaks."""
    bench = Bench([a_seq("a", 6), a_seq("b", 6)], max_num_batched_tokens=8)
    for _ in range(steps_before):
        bench.step()

    assert bench.scheduler.abort("b")

    bench.scheduler.check_integrity()
    assert not bench.scheduler.abort("b")
    assert {"a"} == {output.request_id for output in bench.drain()}
    assert 0 == bench.pool.num_used


def test_an_unknown_abort_is_fine() -> None:
    """A request may end while its abort is on the way."""
    assert not Bench([a_seq("a")]).scheduler.abort("b")


def test_a_long_prompt_does_not_hold_up_decodes() -> None:
    """Decodes go first; the prompt takes what is left of the budget, chunk by chunk."""
    bench = Bench([a_seq("a", 1), a_seq("b", 1)], max_num_batched_tokens=8)
    bench.step()
    bench.scheduler.add(a_seq("long", 14))

    shapes = []
    for _ in range(3):
        step = bench.plan()
        shapes.append(shape_of(step))
        bench.finish(step)

    assert [
        [("a", 1, 1), ("b", 1, 1), ("long", 0, 6)],
        [("a", 2, 1), ("b", 2, 1), ("long", 6, 6)],
        [("a", 3, 1), ("b", 3, 1), ("long", 12, 2)],
    ] == shapes


@pytest.mark.parametrize("budget", [4, 5, 8, 13, 64])
def test_first_tokens_come_in_the_order_of_arrival(budget: int) -> None:
    """Equal prompts get their first tokens first come, first served, whatever the budget."""
    names = [f"r{i}" for i in range(6)]
    bench = Bench(
        [a_seq(name, 7, max_tokens=3) for name in names],
        max_num_seqs=4,
        max_num_batched_tokens=budget,
    )

    first = list(dict.fromkeys(output.request_id for output in bench.drain()))

    assert names == first


def test_nobody_overtakes_in_the_queue() -> None:
    """A small prompt waits behind a large one that finds no room yet."""
    bench = Bench([a_seq("a", 24), a_seq("large", 20), a_seq("small", 1)], num_blocks=8)

    assert ["a"] == [chunk.seq.request_id for chunk in bench.plan().chunks]
    assert (1, 2) == (bench.scheduler.num_running, bench.scheduler.num_waiting)


def test_who_waits_for_anothers_blocks_keeps_its_place() -> None:
    """Of two with a beginning in common the second waits for it, and nobody takes its place."""
    begins = {"first": 0, "alike": 0, "c": 100, "d": 200}
    alike, later = (
        [with_prompt(name, range(begins[name], begins[name] + 80), max_tokens=30) for name in names]
        for names in (("first", "alike"), ("c", "d"))
    )
    limits = {"max_num_seqs": 3, "max_num_batched_tokens": 64, "max_model_len": 128}
    bench = Bench([*alike, *later], num_blocks=120, **limits)
    first_tokens = [output.request_id for output in bench.drain() if output.token_ids]

    assert first_tokens.index("alike") < first_tokens.index("d")
    assert begins.keys() == set(first_tokens)


def test_the_newest_is_preempted_and_computed_again() -> None:
    """When blocks run out the last to come gives way, keeps its tokens, and resumes later."""
    bench = Bench([a_seq("old", 12, max_tokens=16), a_seq("new", 15, max_tokens=16)], num_blocks=8)
    counts = {"old": 0, "new": 0}
    while bench.scheduler.num_preemptions == 0:
        for output in bench.step():
            counts[output.request_id] += 1
    assert (1, 1) == (bench.scheduler.num_running, bench.scheduler.num_waiting)

    outputs = bench.drain()

    resumed = [output for output in outputs if output.request_id == "new"]
    assert 16 == counts["new"] + len(resumed)
    assert [FinishReason.LENGTH] == [o.finish_reason for o in resumed if o.finish_reason]
    order = [output.request_id for output in outputs]
    assert order == sorted(order, reverse=True)  # the old one ends before the new one resumes


def test_a_preempted_sequence_is_next_in_the_queue() -> None:
    """It came before those who wait, so it goes before them."""
    bench = Bench([a_seq("a", 12, 20), a_seq("b", 16, 16)], num_blocks=8)
    bench.scheduler.add(a_seq("c", 20))
    while bench.scheduler.num_preemptions == 0:
        bench.step()

    order = list(dict.fromkeys(o.request_id for o in bench.drain() if o.request_id != "a"))

    assert ["b", "c"] == order


def test_chunks_of_a_prompt_follow_each_other() -> None:
    """A prompt over the budget is computed in contiguous chunks, and sampled at its end only."""
    bench = Bench([a_seq("a", 30)], max_num_batched_tokens=8)
    chunks = []
    while not (chunks and chunks[-1].is_sampled):
        step = bench.plan()
        chunks += step.chunks
        if not chunks[-1].is_sampled:
            assert [] == bench.scheduler.apply({}, step)

    assert [(0, 8), (8, 16), (16, 24), (24, 30)] == [(c.start, c.end) for c in chunks]
    assert all(before.end == after.start for before, after in pairwise(chunks))
