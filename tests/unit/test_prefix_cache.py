"""What the scheduler takes over from the prefix cache, and what it never does."""

from __future__ import annotations

import pytest
from scheduler_bench import Bench, a_seq, shape_of, with_prompt

from streamwell.engine.sequence import Sequence, SequenceOutput

SHARED = range(100, 112)  # three full blocks


def cached_tokens(outputs: list[SequenceOutput]) -> dict[str, int]:
    """What each request was told; nobody is told twice."""
    counts: dict[str, int] = {}
    for output in outputs:
        assert output.request_id not in counts or output.num_cached_tokens == 0
        counts.setdefault(output.request_id, output.num_cached_tokens)
    return counts


@pytest.mark.parametrize(
    ("num_tokens", "expected"), [(1, 0), (4, 0), (5, 4), (8, 4), (9, 8), (12, 8), (13, 12)]
)
def test_full_blocks_before_the_last_token_are_taken_over(num_tokens: int, expected: int) -> None:
    """A prompt that came before is computed from the block that has its last token."""
    prompt = range(100, 100 + num_tokens)
    bench = Bench([with_prompt("old", prompt, max_tokens=1)])
    bench.drain()
    bench.scheduler.add(with_prompt("new", prompt, max_tokens=1))

    assert [("new", expected, num_tokens - expected)] == shape_of(bench.plan())


def test_what_was_generated_is_cached_too() -> None:
    """The next turn of a conversation computes only what is new."""
    first = with_prompt("first", range(100, 106), max_tokens=7)
    bench = Bench([first])
    bench.drain()
    bench.scheduler.add(with_prompt("second", [*first.token_ids, 1, 2, 3]))

    assert [("second", 12, 4)] == shape_of(bench.plan())  # of 13 ids the last was never computed


def test_a_running_sequence_shares_what_it_has_computed() -> None:
    """Nobody has to end first; the blocks are then held twice, and stay when one holder goes."""
    bench = Bench([with_prompt("old", SHARED, max_tokens=20)])
    bench.step()
    bench.scheduler.add(with_prompt("new", [*SHARED, 1, 2]))

    assert [("old", 12, 1), ("new", 12, 2)] == shape_of(bench.plan())
    assert 5 == bench.pool.num_used
    bench.scheduler.abort("old")
    bench.scheduler.check_integrity()
    assert 4 == bench.pool.num_used


def test_equal_prompts_are_computed_once() -> None:
    """Choices of one prompt that come together: the first computes it, the others follow it."""
    names = ["a", "b", "c", "d"]
    bench = Bench([with_prompt(name, [*SHARED, 1]) for name in names])

    shapes = [shape_of(bench.plan())]
    bench = Bench([with_prompt(name, [*SHARED, 1]) for name in names])
    told = cached_tokens(bench.step())
    shapes.append(shape_of(bench.plan()))

    assert [
        [("a", 0, 13)],
        [("a", 13, 1), ("b", 12, 1), ("c", 12, 1), ("d", 12, 1)],
    ] == shapes
    assert {"a": 0} == told


@pytest.mark.parametrize("budget", [8, 10, 11, 13])
def test_equal_long_prompts_are_computed_once_in_chunks(budget: int) -> None:
    """Wherever the chunks are cut, nobody computes what another has begun."""
    names = ["a", "b", "c", "d"]
    prompt = range(100, 129)
    bench = Bench(
        [with_prompt(name, prompt, max_tokens=1) for name in names], max_num_batched_tokens=budget
    )
    num_computed = dict.fromkeys(names, 0)
    while bench.scheduler.has_work:
        for name, _, num_tokens in shape_of(step := bench.plan()):
            num_computed[name] += num_tokens
        bench.finish(step)

    assert {"a": 29, "b": 1, "c": 1, "d": 1} == num_computed


def test_nobody_waits_for_one_who_comes_later() -> None:
    """A short prompt does not wait for the same beginning of a long one, which goes after it."""
    bench = Bench([with_prompt("long", range(100, 130)), with_prompt("short", SHARED)])

    assert [("short", 0, 12), ("long", 0, 30)] == shape_of(bench.plan())


def test_who_waits_for_another_holds_up_nobody() -> None:
    """While a prompt waits for its like, those who came after it are admitted."""
    bench = Bench(
        [with_prompt("a", range(100, 120)), with_prompt("b", range(100, 120)), a_seq("c", 6)],
        max_num_batched_tokens=8,
    )

    assert [("c", 0, 6), ("a", 0, 2)] == shape_of(bench.plan())


def test_when_the_one_ahead_goes_the_next_takes_its_place() -> None:
    """An aborted prompt leaves those who waited for it no worse off than without it."""
    bench = Bench(
        [with_prompt("a", range(100, 120)), with_prompt("b", range(100, 120))],
        max_num_batched_tokens=8,
    )
    assert [] == bench.step()
    bench.scheduler.abort("a")

    assert [("b", 8, 8)] == shape_of(bench.plan())


@pytest.mark.parametrize("salts", [("", "x"), ("x", "y")])
def test_other_salts_never_hit(salts: tuple[str, str]) -> None:
    """Tenants do not share, not even while both run."""
    bench = Bench([with_prompt("a", SHARED, cache_salt=salts[0])])
    bench.step()
    bench.scheduler.add(with_prompt("b", SHARED, cache_salt=salts[1]))
    bench.scheduler.add(with_prompt("c", [*SHARED, 1], cache_salt=salts[0]))

    assert [("a", 12, 1), ("c", 12, 1), ("b", 0, 12)] == shape_of(bench.plan())


def test_a_difference_anywhere_before_is_a_miss() -> None:
    """Equal blocks after different ones are not the same: what a token means depends on those."""
    bench = Bench([with_prompt("old", SHARED, max_tokens=1)])
    bench.drain()
    bench.scheduler.add(with_prompt("new", [7, *range(101, 112), 1]))

    assert [("new", 0, 13)] == shape_of(bench.plan())


def test_a_failed_sequence_leaves_nothing_to_others() -> None:
    """Whatever made it fail may be in its blocks: they are computed anew."""
    bench = Bench([with_prompt("bad", SHARED)])
    bench.step()
    bench.step(bad="not finite")
    bench.scheduler.add(with_prompt("good", SHARED))

    assert [("good", 0, 12)] == shape_of(bench.plan())
    assert 0 == bench.pool.num_cached


def test_only_the_first_admission_counts() -> None:
    """After a preemption a sequence finds its own blocks; that is no saving to speak of."""
    seqs = [
        with_prompt("old", range(100, 112), max_tokens=16),
        with_prompt("new", range(200, 215), max_tokens=16),
    ]
    bench = Bench(seqs, num_blocks=8)
    outputs = []
    while bench.scheduler.num_preemptions == 0:
        outputs += bench.step()
    outputs += bench.drain()

    assert {"old": 0, "new": 0} == cached_tokens(outputs)
    assert (27, 0) == (bench.scheduler.num_queried_tokens, bench.scheduler.num_hit_tokens)


def test_a_preempted_sequence_finds_its_blocks_again() -> None:
    """What nobody needed in between is not computed again."""
    bench = Bench([a_seq("old", 12, max_tokens=8), a_seq("new", 15, max_tokens=16)], num_blocks=8)
    while bench.scheduler.num_preemptions == 0:
        bench.step()
    while "old" not in {output.request_id for output in bench.step() if output.finish_reason}:
        pass

    assert [("new", 12, 5)] == shape_of(bench.plan())


def test_each_is_told_what_was_found_for_it() -> None:
    """The first output of a request, and no other, has the number; the counters add them up."""
    bench = Bench([with_prompt("a", [*SHARED, 1])])
    outputs = bench.drain()
    bench.scheduler.add(with_prompt("b", [*SHARED, 1]))
    bench.scheduler.add(with_prompt("c", range(100, 109)))
    outputs += bench.drain()

    assert {"a": 0, "b": 12, "c": 8} == cached_tokens(outputs)
    assert (35, 20) == (bench.scheduler.num_queried_tokens, bench.scheduler.num_hit_tokens)


def test_without_the_cache_everything_is_computed() -> None:
    """Switched off, no block is kept, nobody waits for another, and nothing is counted."""
    bench = Bench([with_prompt("a", SHARED), with_prompt("b", SHARED)], enable_prefix_caching=False)

    assert [("a", 0, 12), ("b", 0, 12)] == shape_of(bench.plan())
    bench.drain()
    assert (0, 32) == (bench.pool.num_cached, bench.pool.num_free)
    assert (0, 0) == (bench.scheduler.num_queried_tokens, bench.scheduler.num_hit_tokens)


def test_keys_are_those_of_the_tokens() -> None:
    """A key does not depend on when it is asked for, and tells salts and beginnings apart."""

    def keys(prompt: list[int], salt: str = "") -> list[bytes]:
        return with_prompt("a", prompt, cache_salt=salt).block_keys(len(prompt) // 4, 4)

    grown: Sequence = with_prompt("b", range(8))
    grown.block_keys(1, 4)
    grown.token_ids += range(8, 12)

    assert keys(list(range(12))) == grown.block_keys(3, 4)
    assert keys(list(range(12)))[:2] == grown.block_keys(2, 4)
    several = [keys([0, 1, 2, 3] * 2), keys([0, 1, 2, 3], "x"), keys([1, 0, 2, 3], "x")]
    assert 4 == len({key for some in several for key in some})
