"""What every `Store` promises about runs and events; each test runs against every one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import (
    Run,
    Site,
    a_conversation,
    a_delta,
    a_run,
    adopted,
    an_end,
    an_item,
    ids,
    is_accepted,
    memory_site,
    sqlite_site,
)

from streamwell.core.conversation import Page
from streamwell.core.errors import StoreFailed
from streamwell.core.messages import AnswerPart, PartKind, ToolCall
from streamwell.core.ports import Store
from streamwell.core.types import (
    EventKind,
    FinishReason,
    Message,
    RunEvent,
    RunKind,
    RunSpec,
    RunTerms,
    SamplingParams,
    Usage,
)


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


def test_an_empty_commit_is_no_error(store: Store, run: Run) -> None:
    """Nothing to write is not an error."""
    run(store.commit([], []))


token_ids = st.lists(st.integers(0, 2**32 - 1), max_size=5).map(tuple)
counts = st.integers(0, 2**31 - 1)
# A database's columns of names need not hold U+0000, and no name has it.
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
tool_calls = st.lists(st.builds(ToolCall, st.text(), st.text(), st.text()), max_size=2).map(tuple)
messages = st.builds(Message, st.text(), st.text(), tool_calls, st.text())
answer_parts = st.builds(AnswerPart, st.sampled_from(PartKind), st.text(), st.text(), counts)
run_terms = st.builds(
    RunTerms,
    background=st.booleans(),
    store=st.none() | st.booleans(),
    idempotency_key=names,
    messages=st.lists(messages, max_size=2).map(tuple),
    instructions=st.none() | st.text(),
    metadata=st.lists(st.tuples(st.text(), st.text()), max_size=2).map(tuple),
)
run_events = st.builds(
    RunEvent,
    run_id=st.just(""),
    seq=counts,
    kind=st.sampled_from(EventKind),
    index=counts,
    token_ids=token_ids,
    text=st.text(),
    parts=st.none() | st.lists(answer_parts, max_size=2).map(tuple),
    finish_reason=st.none() | st.sampled_from(FinishReason),
    usage=st.none() | st.builds(Usage, counts, counts, counts, counts),
    error=st.none() | st.text(),
)
run_specs = st.builds(
    RunSpec,
    run_id=st.just(""),
    kind=st.sampled_from(RunKind),
    tenant=names,
    model=names,
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
    terms=run_terms,
    part_kinds=st.lists(st.sampled_from(PartKind), max_size=2).map(tuple),
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
    run(store.commit([a_run("new")], [a_delta("old", 1), a_delta("new", 0)]))
    assert [a_delta("old", 0), a_delta("old", 1)] == run(store.events("old"))


def test_the_newest_run_of_a_key_is_found(store: Store, run: Run) -> None:
    """A key belongs to one tenant; of several runs under it the newest counts."""
    old = a_run("c", 1, idempotency_key="key")
    new, newest = replace(old, run_id="a", created_s=2), replace(old, run_id="b", created_s=2)
    other = replace(old, run_id="d", created_s=3, tenant="tenant-2")
    run(store.commit([old, new, newest, other, a_run("e", 4)], []))
    assert newest == run(store.run_of_key("tenant-1", "key"))
    assert other == run(store.run_of_key("tenant-2", "key"))
    assert run(store.run_of_key("tenant-1", "another")) is None


def test_no_run_is_found_by_the_empty_key(store: Store, run: Run) -> None:
    """Runs without a key are not found by it."""
    run(store.commit([a_run("a")], []))
    assert run(store.run_of_key("tenant-1", "")) is None


def test_listed_are_the_runs_that_want_it(store: Store, run: Run) -> None:
    """A list holds one tenant's runs of one kind, and only where `terms.store` is true."""
    listed = a_run("listed", store=True)
    hidden = [
        a_run("false", store=False),
        a_run("none"),
        replace(listed, run_id="tenant", tenant="tenant-2"),
        replace(listed, run_id="kind", kind=RunKind.RESPONSE),
    ]
    run(store.commit([listed, *hidden], []))
    assert [listed] == run(store.runs("tenant-1", RunKind.CHAT, Page()))


def test_a_list_may_be_of_one_model(store: Store, run: Run) -> None:
    """With a model named, only its runs are listed."""
    run(store.commit([a_run("a", store=True), a_run("b", model="river", store=True)], []))
    assert ["b"] == ids(run(store.runs("tenant-1", RunKind.CHAT, Page(), model="river")))


#: Oldest first: two of the same second come by id, and capitals before small letters.
AGED = ["late-id-of-old", "B", "a", "b", "Aé", "new"]
AGES = [1, 2, 2, 2, 3, 4]
PAGES = {
    "newest first": (Page(), AGED[::-1]),
    "oldest first": (Page(newest_first=False), AGED),
    "limit": (Page(limit=2), ["new", "Aé"]),
    "after": (Page(after="b"), ["a", "B", "late-id-of-old"]),
    "after, oldest first": (Page(after="B", newest_first=False, limit=2), ["a", "b"]),
    "after the last": (Page(after="late-id-of-old"), []),
    "after an unlisted one": (Page(after="hidden"), ["b", "a", "B", "late-id-of-old"]),
    "after an unknown one": (Page(after="nobody"), []),
    "after another tenant's": (Page(after="foreign"), []),
}


@pytest.mark.parametrize(("page", "expected"), PAGES.values(), ids=list(PAGES))
def test_pages_of_runs(store: Store, run: Run, page: Page, expected: list[str]) -> None:
    """Pages are cut from one order, by age and then id, from either end."""
    runs = [a_run(id_, age, store=True) for id_, age in zip(AGED, AGES, strict=True)]
    foreign = replace(a_run("foreign", 9, store=True), tenant="tenant-2")
    run(store.commit([*runs[::2], *runs[1::2], foreign, a_run("hidden", 2)], []))
    assert expected == ids(run(store.runs("tenant-1", RunKind.CHAT, page)))


def test_a_spec_can_be_replaced(store: Store, run: Run) -> None:
    """The new spec is what is read, listed and found; events and the end stay."""
    run(store.commit([a_run("a"), a_run("b")], [a_delta("a", 0), an_end("a", 1)]))
    spec = a_run("a", store=True, idempotency_key="key", metadata=(("k", "v"),))
    run(store.update_run(spec))
    assert spec == run(store.run("a"))
    assert [spec] == run(store.runs("tenant-1", RunKind.CHAT, Page()))
    assert spec == run(store.run_of_key("tenant-1", "key"))
    assert [a_delta("a", 0), an_end("a", 1)] == run(store.events("a"))
    assert a_run("b") == run(store.run("b"))


def test_replacing_an_unknown_spec_does_nothing(store: Store, run: Run) -> None:
    """A run that is not there does not come into being."""
    run(store.update_run(a_run("a")))
    assert run(store.run("a")) is None


def test_a_run_can_be_deleted(store: Store, run: Run) -> None:
    """A deleted run takes its events along, ended or not; the second time it is not there."""
    run(store.commit([a_run("a"), a_run("b")], [a_delta("a", 0), a_delta("b", 0)]))
    assert [True, False] == [run(store.delete_run("a")) for _ in range(2)]
    assert (None, []) == (run(store.run("a")), run(store.events("a")))
    assert [a_delta("b", 0)] == run(store.events("b"))


def test_a_deleted_run_takes_no_events(store: Store, run: Run) -> None:
    """Whoever still drives a deleted run is told."""
    run(store.commit([a_run("a")], []))
    run(store.delete_run("a"))
    with pytest.raises(ValueError, match="unknown"):
        run(store.commit([], [a_delta("a", 0)]))


def test_a_deleted_id_may_be_used_again(store: Store, run: Run) -> None:
    """Nothing of a deleted run is left that a run of the same id could meet."""
    run(store.commit([a_run("a", 1)], [a_delta("a", 0)]))
    run(store.delete_run("a"))
    run(store.commit([a_run("a", 3)], [a_delta("a", 0)]))
    assert a_run("a", 3) == run(store.run("a"))


CALLS: dict[str, Callable[[Store], Coroutine[Any, Any, object]]] = {
    "check_writable": lambda store: store.check_writable(),
    "commit": lambda store: store.commit([a_run("a")], []),
    "adopt": lambda store: store.adopt(["brooklet"]),
    "run": lambda store: store.run("a"),
    "run_of_key": lambda store: store.run_of_key("tenant-1", "key"),
    "runs": lambda store: store.runs("tenant-1", RunKind.CHAT, Page()),
    "update_run": lambda store: store.update_run(a_run("a")),
    "delete_run": lambda store: store.delete_run("a"),
    "events": lambda store: store.events("a"),
    "fold": lambda store: store.fold(ended_before_s=0),
    "delete_old": lambda store: store.delete_old(
        ended_before_s=0, unstored_before_s=0, stored_before_s=0
    ),
    "delete_oldest": lambda store: store.delete_oldest(max_bytes=0),
    "create_conversation": lambda store: store.create_conversation(a_conversation("c"), []),
    "conversation": lambda store: store.conversation("c"),
    "conversations": lambda store: store.conversations("tenant-1", Page()),
    "update_conversation": lambda store: store.update_conversation(a_conversation("c")),
    "delete_conversation": lambda store: store.delete_conversation("c"),
    "append_items": lambda store: store.append_items("c", [an_item("1")]),
    "items": lambda store: store.items("c", Page()),
    "delete_item": lambda store: store.delete_item("c", "1"),
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


letters = st.sampled_from("abc")
commits = st.tuples(
    st.lists(st.builds(a_run, letters, st.integers(0, 3)), max_size=2),
    st.lists(
        st.builds(a_delta, letters, st.integers(0, 4))
        | st.builds(an_end, letters, st.integers(0, 4)),
        max_size=3,
    ),
)


def test_any_history_ends_alike_in_memory_and_in_sqlite(run: Run, tmp_path: Path) -> None:
    """The implementations accept the same commits and hold the same runs and events after them."""
    paths = (tmp_path / f"{number}.db" for number in count())

    async def outcome(site: Site, history: list[Any], cutoff: int) -> tuple[Any, ...]:
        store = site.store()
        await store.open()
        answers: list[bool] = []
        try:
            for number, (runs, events) in enumerate(history):
                site.clock.now_s = number
                answers.append(await is_accepted(store, runs, events))
            num_old = await store.delete_old(
                ended_before_s=cutoff, unstored_before_s=cutoff, stored_before_s=cutoff
            )
            runs = [await store.run(letter) for letter in "abc"]
            events = [await store.events(letter) for letter in "abc"]
        finally:
            await store.close()
        return answers, num_old, runs, events, ids(await adopted(site))

    @settings(derandomize=True, database=None, deadline=None, max_examples=25)
    @given(st.lists(commits, max_size=6), st.integers(0, 6))
    def check(history: list[Any], cutoff: int) -> None:
        expected = run(outcome(memory_site(), history, cutoff))
        assert expected == run(outcome(sqlite_site(next(paths)), history, cutoff))

    check()
