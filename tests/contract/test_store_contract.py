"""What every `Store` promises; each test runs against every implementation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamwell.core.errors import StoreFailed
from streamwell.core.ports import Store
from streamwell.core.types import (
    EventKind,
    FinishReason,
    RunEvent,
    RunKind,
    RunSpec,
    SamplingParams,
    Usage,
)
from streamwell.store.memory import MemoryStore
from streamwell.store.sqlite import SqliteStore

T = TypeVar("T")


class Run(Protocol):
    """Runs a coroutine to its end on the test's one event loop."""

    def __call__(self, coroutine: Coroutine[Any, Any, T], /) -> T: ...


def a_run(run_id: str, created_s: int = 1_000) -> RunSpec:
    return RunSpec(
        run_id=run_id,
        kind=RunKind.CHAT,
        tenant="tenant-1",
        model="brooklet",
        created_s=created_s,
        prompts=((1, 2, 3), (4,)),
        num_choices=2,
        sampling=SamplingParams(max_tokens=16, seed=2**64 - 1, logit_bias=((7, -1.5),)),
        stop=("\n\n",),
    )


def a_delta(run_id: str, seq: int) -> RunEvent:
    return RunEvent(
        run_id=run_id, seq=seq, kind=EventKind.DELTA, token_ids=(seq, 151_643), text=f" word{seq}"
    )


def an_end(run_id: str, seq: int) -> RunEvent:
    return RunEvent(run_id=run_id, seq=seq, kind=EventKind.END, usage=Usage(3, seq))


@pytest.fixture
def run() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(params=["memory", "sqlite"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store that has not been opened."""
    if request.param == "memory":
        return MemoryStore()
    return SqliteStore(tmp_path / "streamwell.db")


@pytest.fixture
def store(new_store: Store, run: Run) -> Iterator[Store]:
    """An open store, closed after the test."""
    run(new_store.open())
    yield new_store
    run(new_store.close())


def test_a_run_comes_back_as_it_was_committed(store: Store, run: Run) -> None:
    """A committed run is found by its id, equal in every field."""
    run(store.commit([a_run("a"), a_run("b")], []))
    assert a_run("b") == run(store.run("b"))


def test_an_unknown_run_is_none_and_has_no_events(store: Store, run: Run) -> None:
    """Asking for what is not there is no error."""
    assert run(store.run("nobody")) is None
    assert [] == run(store.events("nobody"))


def test_events_come_back_in_order_of_seq(store: Store, run: Run) -> None:
    """Events are ordered by `seq`, whatever the order in which they were committed."""
    run(store.commit([a_run("a"), a_run("b")], [a_delta("a", 1), a_delta("b", 0), a_delta("a", 0)]))
    run(store.commit([], [a_delta("a", 2)]))
    assert [a_delta("a", seq) for seq in range(3)] == run(store.events("a"))


@pytest.mark.parametrize(
    ("after_seq", "expected"), [(-1, [0, 1, 2]), (0, [1, 2]), (2, []), (9, [])]
)
def test_events_resume_after_a_seq(
    store: Store, run: Run, after_seq: int, expected: list[int]
) -> None:
    """Only events with a greater `seq` than the one named are returned."""
    run(store.commit([a_run("a")], [a_delta("a", seq) for seq in range(3)]))
    assert expected == [event.seq for event in run(store.events("a", after_seq))]


def test_an_empty_commit_changes_nothing(store: Store, run: Run) -> None:
    """Nothing to write is not an error."""
    run(store.commit([], []))
    assert [] == run(store.unended_runs())


token_ids = st.lists(st.integers(0, 2**32 - 1), max_size=5).map(tuple)
counts = st.integers(0, 2**31 - 1)
run_events = st.builds(
    RunEvent,
    run_id=st.just(""),
    seq=counts,
    kind=st.sampled_from(EventKind),
    index=counts,
    token_ids=token_ids,
    text=st.text(),
    finish_reason=st.none() | st.sampled_from(FinishReason),
    usage=st.none() | st.builds(Usage, counts, counts, counts),
    error=st.none() | st.text(),
)
run_specs = st.builds(
    RunSpec,
    run_id=st.just(""),
    kind=st.sampled_from(RunKind),
    tenant=st.text(),
    model=st.text(),
    created_s=st.integers(0, 2**40),
    prompts=st.lists(token_ids, max_size=3).map(tuple),
    num_choices=st.integers(1, 128),
    sampling=st.builds(
        SamplingParams,
        max_tokens=counts,
        temperature=st.floats(0, 2),
        stop_token_ids=token_ids,
        ignore_eos=st.booleans(),
    ),
    stop=st.lists(st.text(), max_size=4).map(tuple),
)


def test_every_value_survives(store: Store, run: Run) -> None:
    """Any run and any event come back equal: all kinds, reasons, texts (U+0000 too) and sizes."""
    run_ids = (f"run-{number}" for number in count())

    @settings(derandomize=True, database=None, deadline=None, max_examples=60)
    @given(run_specs, run_events)
    def check(spec: RunSpec, event: RunEvent) -> None:
        run_id = next(run_ids)
        spec, event = replace(spec, run_id=run_id), replace(event, run_id=run_id)
        run(store.commit([spec], [event]))
        assert spec == run(store.run(run_id))
        assert [event] == run(store.events(run_id))

    check()


def test_text_with_u0000_survives(store: Store, run: Run) -> None:
    """A model may write U+0000; nothing after it is lost."""
    event = replace(a_delta("a", 0), text="before\0after")
    run(store.commit([a_run("a")], [event]))
    assert [event] == run(store.events("a"))


REFUSED_COMMITS = {
    "run is there": ([a_run("new"), a_run("old")], []),
    "run given twice": ([a_run("new"), a_run("new")], []),
    "event is there": ([a_run("new")], [a_delta("new", 0), a_delta("old", 1), a_delta("old", 0)]),
    "event given twice": ([a_run("new")], [a_delta("old", 1), a_delta("old", 1)]),
    "run unknown": ([a_run("new")], [a_delta("old", 1), a_delta("nobody", 0)]),
}


@pytest.mark.parametrize(("runs", "events"), REFUSED_COMMITS.values(), ids=list(REFUSED_COMMITS))
def test_a_refused_commit_writes_nothing(
    store: Store, run: Run, runs: list[RunSpec], events: list[RunEvent]
) -> None:
    """One bad run or event refuses the whole commit, and the next good commit is accepted."""
    run(store.commit([a_run("old")], [a_delta("old", 0)]))
    with pytest.raises(ValueError, match=r"already|unknown"):
        run(store.commit(runs, events))
    assert run(store.run("new")) is None
    assert [a_delta("old", 0)] == run(store.events("old"))
    assert [a_run("old")] == run(store.unended_runs())
    run(store.commit([a_run("new")], [a_delta("old", 1), a_delta("new", 0)]))
    assert [a_delta("old", 0), a_delta("old", 1)] == run(store.events("old"))


def test_unended_runs_are_ordered_by_age_then_id(store: Store, run: Run) -> None:
    """The oldest run comes first; runs of the same second come by id."""
    run(store.commit([a_run("c", 2), a_run("b", 1), a_run("a", 2), a_run("d", 0)], []))
    assert ["d", "b", "a", "c"] == [spec.run_id for spec in run(store.unended_runs())]


def test_an_end_event_ends_its_run(store: Store, run: Run) -> None:
    """A run is unended until its `END` is committed, be it in the commit that made the run."""
    run(store.commit([a_run("a"), a_run("b"), a_run("c")], [an_end("b", 0)]))
    assert [a_run("a"), a_run("c")] == run(store.unended_runs())
    run(store.commit([], [a_delta("a", 0), an_end("a", 1)]))
    assert [a_run("c")] == run(store.unended_runs())
    assert a_run("a") == run(store.run("a"))


def test_only_old_ended_runs_are_deleted(store: Store, run: Run) -> None:
    """Deleting takes ended runs created before the time, their events too, and counts the runs."""
    run(store.commit([a_run("old", 1), a_run("old-live", 1), a_run("new", 5)], []))
    run(store.commit([], [a_delta("old", 0), an_end("old", 1), a_delta("old-live", 0)]))
    run(store.commit([], [an_end("new", 0)]))
    assert 1 == run(store.delete_ended_before(5))
    assert [None, a_run("old-live", 1), a_run("new", 5)] == [
        run(store.run(run_id)) for run_id in ("old", "old-live", "new")
    ]
    assert [0, 1, 1] == [len(run(store.events(run_id))) for run_id in ("old", "old-live", "new")]
    assert 0 == run(store.delete_ended_before(5))


def test_a_deleted_id_may_be_used_again(store: Store, run: Run) -> None:
    """Nothing of a deleted run is left that a run of the same id could meet."""
    run(store.commit([a_run("a", 1)], [an_end("a", 0)]))
    run(store.delete_ended_before(2))
    run(store.commit([a_run("a", 3)], [a_delta("a", 0)]))
    assert [a_run("a", 3)] == run(store.unended_runs())


def test_many_runs_are_deleted_at_once(store: Store, run: Run) -> None:
    """There is no limit on how many runs one call deletes."""
    run_ids = [f"run-{number}" for number in range(50)]
    run(store.commit([a_run(id_) for id_ in run_ids], [an_end(id_, 0) for id_ in run_ids]))
    assert 50 == run(store.delete_ended_before(2_000))
    assert all(run(store.run(run_id)) is None for run_id in run_ids)


CALLS: dict[str, Callable[[Store], Coroutine[Any, Any, object]]] = {
    "commit": lambda store: store.commit([a_run("a")], []),
    "run": lambda store: store.run("a"),
    "events": lambda store: store.events("a"),
    "unended_runs": lambda store: store.unended_runs(),
    "delete_ended_before": lambda store: store.delete_ended_before(0),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_only_an_open_store_answers(
    new_store: Store, run: Run, call: Callable[[Store], Coroutine[Any, Any, object]]
) -> None:
    """Before `open` and after `close`, every call says that the store is not open."""
    with pytest.raises(StoreFailed, match="not open"):
        run(call(new_store))
    run(new_store.open())
    run(new_store.close())
    with pytest.raises(StoreFailed, match="not open"):
        run(call(new_store))


def test_open_and_close_are_idempotent(new_store: Store, run: Run) -> None:
    """Opening twice or closing twice does no more than once; a closed store can open again."""
    run(new_store.close())
    run(new_store.open())
    run(new_store.open())
    run(new_store.commit([a_run("a")], []))
    run(new_store.close())
    run(new_store.close())
    run(new_store.open())
    assert a_run("a") == run(new_store.run("a"))
    run(new_store.close())


def test_concurrent_commits_are_all_kept(store: Store, run: Run) -> None:
    """Commits that do not wait for each other lose nothing."""

    async def commit_together() -> None:
        await store.commit([a_run(f"run-{number}") for number in range(8)], [])
        await asyncio.gather(
            *(
                store.commit([], [a_delta(f"run-{number}", seq)])
                for seq in range(8)
                for number in range(8)
            )
        )

    run(commit_together())
    for number in range(8):
        events = run(store.events(f"run-{number}"))
        assert [a_delta(f"run-{number}", seq) for seq in range(8)] == events


def test_readers_see_whole_commits(store: Store, run: Run) -> None:
    """A reader that runs beside commits of eight events never sees a part of eight."""
    num_commits, size = 40, 8

    async def write() -> None:
        for start in range(0, num_commits * size, size):
            await store.commit([], [a_delta("a", seq) for seq in range(start, start + size)])

    async def read(writer: asyncio.Task[None]) -> None:
        while not writer.done():
            events = await store.events("a")
            assert 0 == len(events) % size
            # A store that answers without waiting must not keep the writer from its turn.
            await asyncio.sleep(0)

    async def read_and_write() -> None:
        await store.commit([a_run("a")], [])
        writer = asyncio.create_task(write())
        await asyncio.gather(writer, *(read(writer) for _ in range(6)))

    run(read_and_write())
    assert num_commits * size == len(run(store.events("a")))


#: Turns of the event loop before a cancellation: early, midway, and after the answer.
NUM_TURNS = [0, 1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 512]


@pytest.mark.parametrize("num_turns", NUM_TURNS)
def test_a_cancelled_commit_is_whole_or_absent(store: Store, run: Run, num_turns: int) -> None:
    """Whenever its caller is cancelled, a commit is kept fully or not at all; others go on."""
    events = [a_delta("a", seq) for seq in range(32)]

    async def cancel_a_commit() -> None:
        task = asyncio.create_task(store.commit([a_run("a")], events))
        for _ in range(num_turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await store.commit([a_run("b")], [a_delta("b", 0)])

    run(cancel_a_commit())
    expected = events if run(store.run("a")) else []
    assert expected == run(store.events("a"))
    assert [a_delta("b", 0)] == run(store.events("b"))


@pytest.mark.parametrize("num_turns", NUM_TURNS)
def test_a_cancelled_read_leaves_the_store_usable(store: Store, run: Run, num_turns: int) -> None:
    """Readers may be cancelled at any moment, more of them than there are connections."""
    run(store.commit([a_run("a")], [a_delta("a", 0)]))

    async def cancel_reads() -> None:
        for _ in range(8):
            task = asyncio.create_task(store.events("a"))
            for _ in range(num_turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])

    run(cancel_reads())
    assert [a_delta("a", 0)] == run(store.events("a"))


def test_close_waits_for_earlier_commits(new_store: Store, run: Run) -> None:
    """Commits that were called before `close` are carried out."""

    async def commit_and_close() -> None:
        await new_store.open()
        await new_store.commit([a_run("a")], [])
        commits = [new_store.commit([], [a_delta("a", seq)]) for seq in range(10)]
        await asyncio.gather(*commits, new_store.close())

    run(commit_and_close())
    run(new_store.open())
    assert 10 == len(run(new_store.events("a")))
    run(new_store.close())


def test_close_waits_for_earlier_reads(new_store: Store, run: Run) -> None:
    """Reads that were called before `close` get their answers, and leave no connection behind."""

    async def read_and_close() -> list[RunSpec | None]:
        await new_store.open()
        await new_store.commit([a_run("a")], [])
        reads = [asyncio.create_task(new_store.run("a")) for _ in range(3)]
        await asyncio.sleep(0)
        await new_store.close()
        return [await read for read in reads]

    assert [a_run("a")] * 3 == run(read_and_close())


names = st.sampled_from("abc")
commits = st.tuples(
    st.lists(st.builds(a_run, names, st.integers(0, 3)), max_size=2),
    st.lists(
        st.builds(a_delta, names, st.integers(0, 4)) | st.builds(an_end, names, st.integers(0, 4)),
        max_size=3,
    ),
)


def test_any_history_ends_alike_in_memory_and_in_sqlite(run: Run, tmp_path: Path) -> None:
    """The implementations accept the same commits and hold the same runs and events after them."""
    paths = (tmp_path / f"{number}.db" for number in count())

    async def outcome(store: Store, history: list[Any], cutoff_s: int) -> tuple[Any, ...]:
        await store.open()
        try:
            return (
                [await is_accepted(store, *commit) for commit in history],
                await store.delete_ended_before(cutoff_s),
                [await store.run(name) for name in "abc"],
                [await store.events(name) for name in "abc"],
                await store.unended_runs(),
            )
        finally:
            await store.close()

    @settings(derandomize=True, database=None, deadline=None, max_examples=25)
    @given(st.lists(commits, max_size=6), st.integers(0, 4))
    def check(history: list[Any], cutoff_s: int) -> None:
        expected = run(outcome(MemoryStore(), history, cutoff_s))
        assert expected == run(outcome(SqliteStore(next(paths)), history, cutoff_s))

    check()


async def is_accepted(store: Store, runs: list[RunSpec], events: list[RunEvent]) -> bool:
    try:
        await store.commit(runs, events)
    except ValueError:
        return False
    return True
