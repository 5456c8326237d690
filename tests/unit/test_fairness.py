"""Who gets how much of a step: decodes, then prefills, the short and the first in rank."""

from __future__ import annotations

import pytest
from scheduler_bench import Bench, a_seq, shape_of

from streamwell.engine.pace import LEAST_TOKENS

BUDGET = 256


def steps_until(bench: Bench, request_id: str) -> int:
    """How many steps a request's first token takes from now on."""
    for count in range(1, 1000):
        if request_id in {output.request_id for output in bench.step()}:
            return count
    raise AssertionError(request_id)


def roomy(*, max_num_seqs: int = 64) -> Bench:
    return Bench(
        num_blocks=20_000,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=BUDGET,
        max_model_len=16_384,
    )


@pytest.mark.parametrize("num_long", [1, 2, 5])
@pytest.mark.parametrize("num_decodes", [1, 30])
def test_a_short_prompt_does_not_wait_for_long_ones(num_long: int, num_decodes: int) -> None:
    """While prompts of 8k tokens prefill, one of ten tokens gets its first token at once."""
    bench = roomy()
    for number in range(num_decodes):
        bench.scheduler.add(a_seq(f"d{number}", 4, max_tokens=1000))
    bench.step()
    for number in range(num_long):
        bench.scheduler.add(a_seq(f"long{number}", 8000))
    for _ in range(5):
        bench.step()
    bench.scheduler.add(a_seq("short", 10))

    assert 1 == steps_until(bench, "short")


def test_at_the_least_pace_a_short_prompt_waits_three_steps() -> None:
    """However slow prompts are, one of ten tokens beside a long one answers in the third step."""
    bench = roomy()
    bench.scheduler.add(a_seq("stream", 4, max_tokens=1000))
    bench.step()
    bench.scheduler.add(a_seq("long", 8000))
    bench.scheduler.add(a_seq("short", 10))
    steps = [bench.finish(bench.plan(LEAST_TOKENS)) for _ in range(3)]

    answered = ["short" in {output.request_id for output in step} for step in steps]
    assert [False, False, True] == answered


def test_short_prompts_cost_a_long_one_half_of_its_steps_at_most() -> None:
    """However many short ones come, the first in rank gets half of what decodes leave."""
    bench = roomy()
    bench.scheduler.add(a_seq("long", 8000, max_tokens=1))
    for number in range(1000):
        bench.scheduler.add(a_seq(f"s{number}", 120, max_tokens=1))
        bench.scheduler.add(a_seq(f"t{number}", 120, max_tokens=1))
        if "long" in {output.request_id for output in bench.step()}:
            break

    assert 8000 // (BUDGET // 2) + 1 == number + 1


@pytest.mark.parametrize(("length", "num_steps"), [(160, 16), (400, 16), (4000, 32)])
def test_whoever_came_first_is_through_soon(length: int, num_steps: int) -> None:
    """However many shorter ones come: in sixteen steps, or with half of each where that is less."""
    bench = roomy()
    bench.scheduler.add(a_seq("first", length))
    for number in range(1000):
        bench.scheduler.add(a_seq(f"s{number}", 9, max_tokens=1))

    assert num_steps == steps_until(bench, "first")


def test_whoever_came_first_holds_up_shorter_ones_little() -> None:
    """Of a step's tokens a prompt of 400 that came first takes a sixteenth of its own: 25."""
    bench = roomy()
    bench.scheduler.add(a_seq("first", 400))
    bench.scheduler.add(a_seq("shorter", 300))

    assert [("shorter", 0, 231), ("first", 0, 25)] == shape_of(bench.plan())


def test_a_long_prompt_leaves_nothing_unused() -> None:
    """What a short one does not need, the long one gets."""
    bench = roomy()
    bench.scheduler.add(a_seq("long", 8000))
    bench.step()
    bench.scheduler.add(a_seq("short", 10))

    assert [("short", 0, 10), ("long", 256, 246)] == shape_of(bench.plan())


def test_equal_prompts_do_not_slow_each_other_down() -> None:
    """One after the other, not all at the end: the first tokens come as early as they can."""
    bench = roomy()
    for number in range(4):
        bench.scheduler.add(a_seq(f"r{number}", 300))

    firsts = [steps_until(bench, f"r{number}") for number in range(4)]

    assert [2, 1, 1, 1] == firsts


def test_many_long_prompts_all_come_to_their_end() -> None:
    """Each is the first in rank in its turn: with longer ones before it and shorter ones after."""
    bench = roomy()
    lengths = {"a": 3000, "b": 5000, "c": 900, "d": 4000, "e": 50}
    for name, length in lengths.items():
        bench.scheduler.add(a_seq(name, length, max_tokens=1))

    order = [output.request_id for output in bench.drain()]

    assert ["e", "c", "a", "d", "b"] == order


@pytest.mark.parametrize("num_seqs", [1, 2, 8])
def test_the_smallest_budget_feeds_everybody_who_decodes(num_seqs: int) -> None:
    """With one token per sequence and step, everyone gets on, prefills too."""
    bench = Bench(max_num_seqs=num_seqs, max_num_batched_tokens=num_seqs, num_blocks=64)
    names = [f"r{number}" for number in range(2 * num_seqs)]
    for name in names:
        bench.scheduler.add(a_seq(name, 9, max_tokens=3))

    assert 3 * len(names) == len(bench.drain())


def test_a_better_priority_is_admitted_first() -> None:
    """Of those who wait, the lowest number goes first; equals go by arrival."""
    bench = Bench(max_num_seqs=1)
    for name, priority in (("a", 0), ("b", 5), ("c", -1), ("d", 0), ("e", 5)):
        bench.scheduler.add(a_seq(name, max_tokens=1, priority=priority))

    assert ["c", "a", "d", "b", "e"] == [output.request_id for output in bench.drain()]


def test_a_better_priority_prefills_first() -> None:
    """A long prompt of a better priority goes before a short one; decodes are never held up."""
    bench = Bench([a_seq("decode", priority=9)], max_num_batched_tokens=9)
    bench.step()
    bench.scheduler.add(a_seq("short", 4, priority=1))
    bench.scheduler.add(a_seq("long", 20, priority=-1))

    assert [("decode", 4, 1), ("long", 0, 8)] == shape_of(bench.plan())


@pytest.mark.parametrize(
    ("priorities", "victim"),
    [((0, 0), "new"), ((1, 0), "old"), ((0, 1), "new"), ((-1, -2), "old")],
)
def test_the_worst_in_rank_is_preempted(priorities: tuple[int, int], victim: str) -> None:
    """The highest number gives way, whenever it came; of equals the newest does."""
    old, new = (
        a_seq(name, 14, max_tokens=16, priority=priority)
        for name, priority in zip(("old", "new"), priorities, strict=True)
    )
    bench = Bench([old, new], num_blocks=8)
    while bench.scheduler.num_preemptions == 0:
        bench.step()

    assert [victim] == [seq.request_id for seq in (old, new) if not seq.block_ids]
    last = {output.request_id: at for at, output in enumerate(bench.drain())}
    assert victim == max(last, key=lambda name: last[name])
