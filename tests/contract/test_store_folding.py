"""What every `Store` promises about folding: what is kept gets small, and nobody can tell."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from stores import Run, Site, a_delta, a_run, adopted, an_end, ids

from streamwell.core.conversation import Page
from streamwell.core.ports import Store
from streamwell.core.types import EventKind, FinishReason, RunEvent, RunKind, Usage
from streamwell.store.schema import RUN_EVENTS
from streamwell.store.sql import SqlStore

NEVER = 9e9


def history(run_id: str, num_deltas: int) -> list[RunEvent]:
    """All events of a run that has ended."""
    start = RunEvent(run_id=run_id, seq=0, kind=EventKind.START)
    deltas = [a_delta(run_id, seq) for seq in range(1, num_deltas + 1)]
    finish = RunEvent(
        run_id=run_id,
        seq=num_deltas + 1,
        kind=EventKind.FINISH,
        finish_reason=FinishReason.LENGTH,
        token_ids=(7,),
    )
    return [start, *deltas, finish, an_end(run_id, num_deltas + 2)]


async def num_rows(store: SqlStore) -> int:
    return len(await store._read(tuple, RUN_EVENTS.select()))


def test_the_events_of_a_folded_run_are_what_they_were(store: Store, run: Run) -> None:
    """From every place on, as is its spec; and it may be folded again."""
    events = history("a", 20)
    run(store.commit([a_run("a"), a_run("b")], events))
    for _ in range(2):
        run(store.fold(ended_before_s=NEVER))
        for seq in range(-1, len(events) + 1):
            assert events[seq + 1 :] == run(store.events("a", seq))
    assert a_run("a") == run(store.run("a"))
    assert [] == run(store.events("b"))


def test_only_runs_that_ended_before_are_folded(site: Site, store: Store, run: Run) -> None:
    """Live ones take events as before, and so does a run whose end is younger, while it is read."""
    for number, run_id in enumerate("abc"):
        site.clock.now_s = float(number)
        run(store.commit([a_run(run_id)], history(run_id, 3)))
    run(store.commit([a_run("live")], [a_delta("live", 0)]))
    num_folded = run(store.fold(ended_before_s=2.0))
    run(store.commit([], [a_delta("live", 1)]))

    assert [history(run_id, 3) for run_id in "abc"] == [run(store.events(id_)) for id_ in "abc"]
    assert [a_delta("live", 0), a_delta("live", 1)] == run(store.events("live"))
    assert 2 == num_folded
    if isinstance(store, SqlStore):
        assert 1 + 1 + 6 + 2 == run(num_rows(store))


def test_any_event_survives_folding(store: Store, run: Run) -> None:
    """All kinds, reasons, texts (U+0000 too), ids and errors."""
    run_ids = (f"run-{number}" for number in count())
    counts = st.integers(0, 2**31 - 1)
    events = st.builds(
        RunEvent,
        run_id=st.just(""),
        seq=st.just(0),
        kind=st.sampled_from(EventKind),
        index=counts,
        token_ids=st.lists(st.integers(0, 2**32 - 1), max_size=5).map(tuple),
        text=st.text(),
        finish_reason=st.none() | st.sampled_from(FinishReason),
        usage=st.none() | st.builds(Usage, counts, counts, counts),
        error=st.none() | st.text(),
        error_code=st.none() | st.text(),
    )

    @settings(derandomize=True, database=None, deadline=None, max_examples=30)
    @given(st.lists(events, min_size=1, max_size=5))
    def check(some: list[RunEvent]) -> None:
        run_id = next(run_ids)
        kept = [replace(event, run_id=run_id, seq=seq) for seq, event in enumerate(some)]
        kept.append(an_end(run_id, len(kept)))
        run(store.commit([a_run(run_id)], kept))
        run(store.fold(ended_before_s=NEVER))
        assert kept == run(store.events(run_id))

    check()


def test_many_runs_are_folded_at_once(site: Site, store: Store, run: Run) -> None:
    """There is no limit on how many, and two servers may do it side by side."""
    run_ids = [f"run-{number:02}" for number in range(30)]
    for run_id in run_ids:
        run(store.commit([a_run(run_id)], history(run_id, 5)))
    other = site.store()

    async def fold_together() -> int:
        await other.open()
        stores = (store, other) * 2
        return sum(await asyncio.gather(*(each.fold(ended_before_s=NEVER) for each in stores)))

    num_folded = run(fold_together())
    run(other.close())
    assert [history(run_id, 5) for run_id in run_ids] == [run(store.events(i)) for i in run_ids]
    assert 30 == num_folded
    if isinstance(store, SqlStore):
        assert 30 == run(num_rows(store))


def test_a_folded_run_is_still_a_run(store: Store, run: Run) -> None:
    """It is listed, noted on, not adopted, and deleted like any other."""
    spec = a_run("a", store=True)
    run(store.commit([spec], history("a", 3)))
    run(store.fold(ended_before_s=NEVER))
    noted = replace(spec, priority=7)
    run(store.update_run(noted))
    assert [noted] == run(store.runs("tenant-1", RunKind.CHAT, Page()))
    assert run(store.delete_run("a"))
    assert [] == run(store.events("a"))
    run(store.commit([spec], [a_delta("a", 0)]))
    assert [a_delta("a", 0)] == run(store.events("a"))


def test_nobody_adopts_a_folded_run(site: Site, store: Store, run: Run) -> None:
    """It has ended, whoever had its lease."""
    run(store.commit([a_run("a")], history("a", 3)))
    run(store.fold(ended_before_s=NEVER))
    run(store.close())
    assert [] == ids(run(adopted(site)))


def test_what_is_folded_counts_for_less(store: Store, run: Run) -> None:
    """More runs fit into the same room."""
    for run_id in "ab":
        run(store.commit([a_run(run_id)], history(run_id, 1000)))
    run(store.fold(ended_before_s=NEVER))
    assert 0 == run(store.delete_oldest(max_bytes=2 * 6 * 1000))
    assert history("a", 1000) == run(store.events("a"))
