"""The run log: written before it is shown, in groups, to readers of any speed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

import pytest

from streamwell.core.conversation import NewItems
from streamwell.core.errors import LeaseLost, StoreFailed
from streamwell.core.types import (
    EventKind,
    RunEvent,
    RunKind,
    RunSpec,
    RunTerms,
    SamplingParams,
    Usage,
)
from streamwell.service.run_log import RunLog
from streamwell.store.memory import MemoryStore

#: Nothing here takes a second; these only end a test that would hang.
DEADLINE_S = 30
pytestmark = pytest.mark.timeout(2 * DEADLINE_S)


class Gate(MemoryStore):
    """A store whose commits can be held up or made to fail, and are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.may_commit = asyncio.Event()
        self.may_commit.set()
        self.may_adopt = asyncio.Event()
        self.may_adopt.set()
        self.failures: list[Exception] = []
        self.unreadable_ids: list[str] = []
        self.num_opened = 0
        self.is_lost = self.is_deaf = False
        self.commits: list[tuple[int, int]] = []

    async def open(self) -> None:
        self.num_opened += 1
        await super().open()

    async def events(self, run_id: str, after_seq: int = -1) -> list[RunEvent]:
        if run_id in self.unreadable_ids:
            self.unreadable_ids.remove(run_id)
            raise StoreFailed
        return await super().events(run_id, after_seq)

    async def adopt(self, models: Collection[str], run_id: str = "") -> list[RunSpec]:
        if self.is_lost:
            self.is_lost = False
            raise LeaseLost
        adopted = await super().adopt(models, run_id)
        await self.may_adopt.wait()
        return adopted

    async def release(self, run_id: str) -> None:
        if self.is_deaf:
            raise StoreFailed
        await super().release(run_id)

    async def commit(
        self,
        runs: Sequence[RunSpec],
        events: Sequence[RunEvent],
        items: Sequence[NewItems] = (),
    ) -> None:
        self.commits.append((len(runs), len(events)))
        await self.may_commit.wait()
        if self.failures:
            raise self.failures.pop(0)
        await super().commit(runs, events, items)


def a_run(run_id: str, key: str = "") -> RunSpec:
    return RunSpec(
        run_id=run_id,
        kind=RunKind.COMPLETION,
        tenant="",
        model="m",
        created_s=1,
        prompts=((1,),),
        num_choices=1,
        sampling=SamplingParams(max_tokens=1),
        stop=(),
        terms=RunTerms(idempotency_key=key),
    )


def event(run_id: str, seq: int, kind: EventKind = EventKind.DELTA) -> RunEvent:
    usage = Usage(1, seq) if kind is EventKind.END else None
    return RunEvent(run_id=run_id, seq=seq, kind=kind, text=f"{seq} ", usage=usage)


def events_to(run_id: str, last_seq: int) -> list[RunEvent]:
    """A whole run: a start, deltas, and an end as number `last_seq`."""
    deltas = [event(run_id, seq) for seq in range(1, last_seq)]
    return [event(run_id, 0, EventKind.START), *deltas, event(run_id, last_seq, EventKind.END)]


async def read(log: RunLog, run_id: str, after_seq: int = -1) -> list[RunEvent]:
    return [item async for batch in log.follow(run_id, after_seq) for item in batch]


async def turns(count: int = 20) -> None:
    """Let the other tasks do all that they can do."""
    for _ in range(count):
        await asyncio.sleep(0)


def run(test: Callable[[RunLog, Gate], Awaitable[None]]) -> None:
    """Run a test with an open log, which is closed after it."""

    async def main() -> None:
        store = Gate()
        log = RunLog(store)
        await log.open()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await test(log, store)
        finally:
            store.may_commit.set()
            await log.close()

    asyncio.run(main())


def test_a_reader_gets_all_events_up_to_the_end() -> None:
    """Events come in order, whenever they are written, and the reader ends after the end."""

    async def test(log: RunLog, _store: Gate) -> None:
        first, *others = events_to("a", 5)
        log.create(a_run("a"), [first])
        reading = asyncio.create_task(read(log, "a"))
        for item in others:
            await turns()
            log.append(item)
        assert [first, *others] == await reading

    run(test)


def test_nothing_is_shown_before_it_is_saved() -> None:
    """Whatever a reader sees is in the store by then."""

    async def test(log: RunLog, store: Gate) -> None:
        async def check() -> int:
            count = 0
            async for batch in log.follow("a"):
                saved = await store.events("a")
                assert all(item in saved for item in batch)
                count += len(batch)
            return count

        first, *others = events_to("a", 6)
        log.create(a_run("a"), [first])
        checking = asyncio.create_task(check())
        store.may_commit.clear()
        await turns()
        assert [] == await store.events("a")
        assert not checking.done()
        for item in others:
            log.append(item)
            store.may_commit.set()
            await turns()
            store.may_commit.clear()
        assert 7 == await checking

    run(test)


def test_many_runs_share_a_commit() -> None:
    """What 50 runs append in one turn of the event loop is one commit."""

    async def test(log: RunLog, store: Gate) -> None:
        for number in range(50):
            log.create(a_run(f"r{number}"), [event(f"r{number}", 0, EventKind.START)])
        await turns()
        for number in range(50):
            log.append(event(f"r{number}", 1), event(f"r{number}", 2, EventKind.END))
        await turns()
        assert [(50, 50), (0, 100)] == store.commits

    run(test)


def test_what_comes_during_a_commit_gathers_for_the_next() -> None:
    """However slow the store, there is one commit at a time, and the next takes all."""

    async def test(log: RunLog, store: Gate) -> None:
        store.may_commit.clear()
        log.create(a_run("a"), [event("a", 0, EventKind.START)])
        for seq in range(1, 10):
            await turns()
            log.append(event("a", seq))
        assert [(1, 1)] == store.commits
        store.may_commit.set()
        log.append(event("a", 10, EventKind.END))
        assert 11 == len(await read(log, "a"))
        assert [(1, 1), (0, 10)] == store.commits

    run(test)


def test_readers_of_different_speeds_see_the_same() -> None:
    """A slow reader gets in few large pieces what a quick one gets one by one."""

    async def test(log: RunLog, _store: Gate) -> None:
        async def read_slowly(pause_turns: int) -> list[list[RunEvent]]:
            batches = []
            async for batch in log.follow("a"):
                batches.append(batch)
                await turns(pause_turns)
            return batches

        first, *others = events_to("a", 20)
        log.create(a_run("a"), [first])
        readers = [asyncio.create_task(read_slowly(pause)) for pause in (0, 7, 1000)]
        for item in others:
            await turns(6)
            log.append(item)
        quick, slow, slowest = await asyncio.gather(*readers)
        for batches in (quick, slow, slowest):
            assert [first, *others] == [item for batch in batches for item in batch]
        assert len(slowest) < len(slow) < len(quick)

    run(test)


@pytest.mark.parametrize("after_seq", [-1, 0, 3, 6, 7, 50])
@pytest.mark.parametrize("num_written", [1, 4, 8])
def test_a_reader_may_come_back(after_seq: int, num_written: int) -> None:
    """`after_seq` skips what was seen: before, within and behind what is written so far."""

    async def test(log: RunLog, _store: Gate) -> None:
        events = events_to("a", 7)
        log.create(a_run("a"), events[:num_written])
        await turns()
        reading = asyncio.create_task(read(log, "a", after_seq))
        await turns()
        log.append(*events[num_written:])
        assert events[after_seq + 1 :] == await reading

    run(test)


def test_an_ended_run_is_read_from_the_store() -> None:
    """After the end the store has it all; who has seen it all gets nothing more, and no error."""

    async def test(log: RunLog, _store: Gate) -> None:
        events = events_to("a", 3)
        log.create(a_run("a"), events)
        await read(log, "a")
        assert events[2:] == await read(log, "a", 1)
        assert [] == await read(log, "a", 3)
        assert (a_run("a"), None) == (await log.spec("a"), await log.spec("nobody"))

    run(test)


def test_a_reader_that_leaves_disturbs_no_other() -> None:
    """A reader may be cancelled while it waits; those who wait beside it get the next event."""

    async def test(log: RunLog, _store: Gate) -> None:
        events = events_to("a", 2)
        log.create(a_run("a"), events[:1])
        stays, leaves = (asyncio.create_task(read(log, "a")) for _ in range(2))
        await turns()
        leaves.cancel()
        log.append(*events[1:])
        assert events == await stays
        assert leaves.cancelled()

    run(test)


def test_close_writes_what_is_pending() -> None:
    """A log that is closed has written all that was appended before."""

    async def main() -> None:
        store = Gate()
        log = RunLog(store)
        await log.open()
        store.may_commit.clear()
        log.create(a_run("a"), events_to("a", 2)[:1])
        await turns()
        log.append(*events_to("a", 2)[1:])
        closing = asyncio.create_task(log.close())
        await turns()
        assert not closing.done()
        store.may_commit.set()
        await asyncio.wait_for(closing, DEADLINE_S)
        await store.open()
        assert events_to("a", 2) == await store.events("a")

    asyncio.run(main())


def test_readers_hear_that_the_store_failed() -> None:
    """Every reader of a run gets `StoreFailed` after what was saved, and nothing unsaved."""

    async def test(log: RunLog, store: Gate) -> None:
        async def read_to_failure() -> list[RunEvent]:
            seen = []
            try:
                async for batch in log.follow("a"):
                    seen += batch
            except StoreFailed:
                return seen
            raise AssertionError("the reader was told that the run had ended")

        log.create(a_run("a"), [event("a", 0, EventKind.START)])
        readers = [asyncio.create_task(read_to_failure()) for _ in range(2)]
        await turns()
        store.failures = [StoreFailed("disk full")]
        log.append(event("a", 1))
        assert [[event("a", 0, EventKind.START)]] * 2 == await asyncio.gather(*readers)
        assert [event("a", 0, EventKind.START)] == await store.events("a")

    run(test)


def test_a_lease_that_is_lost_twice_at_a_time_is_renewed_once() -> None:
    """Adopting and a commit hear of it one after the other; what comes then is written."""

    async def test(log: RunLog, store: Gate) -> None:
        store.may_commit.clear()
        store.failures = [LeaseLost()]
        log.create(a_run("a"), [event("a", 0, EventKind.START)])
        await turns()
        store.is_lost = True
        assert [] == await log.adopt(["m"])
        log.create(a_run("b"), [event("b", 0, EventKind.START)])
        store.may_commit.set()
        await turns()

        assert (2, False) == (store.num_opened, log.is_live("a"))
        log.append(event("b", 1), event("b", 2, EventKind.END))
        assert 3 == len(await read(log, "b"))

    run(test)


def test_a_run_that_could_not_be_let_go_is_taken_up_again() -> None:
    """It is nobody else's: the store did not hear of it."""

    async def test(log: RunLog, store: Gate) -> None:
        log.create(a_run("a"), [event("a", 0, EventKind.START)])
        await turns()
        store.is_deaf = True
        with pytest.raises(StoreFailed):
            await log.release("a")
        assert not log.is_live("a")

        assert ["a"] == [spec.run_id for spec, _ in await log.adopt([])]
        store.is_deaf = False
        await log.release("a")
        assert [] == await log.adopt([])

    run(test)


def test_a_take_over_that_fails_in_between_is_tried_again() -> None:
    """Runs are this server's once the store says so: none is lost if one cannot be read."""

    async def test(log: RunLog, store: Gate) -> None:
        specs = [a_run("a"), a_run("b")]
        await store.commit(specs, [event("a", 0), event("b", 0)])
        await store.close()
        await store.open()  # as the next server
        store.unreadable_ids = ["b"]
        with pytest.raises(StoreFailed):
            await log.adopt(["m"])
        assert not log.is_live("a")

        assert ["a", "b"] == [spec.run_id for spec, _ in await log.adopt(["m"])]
        assert log.is_live("a")
        assert log.is_live("b")

    run(test)


def test_a_take_over_outlasts_who_asked_for_it() -> None:
    """The store gives a run away once; a request that ends meanwhile does not lose it."""

    async def test(log: RunLog, store: Gate) -> None:
        await store.commit([a_run("a")], [event("a", 0)])
        await store.close()
        await store.open()  # as the next server
        store.may_adopt.clear()
        asking = asyncio.create_task(log.adopt(["m"]))
        await turns()
        asking.cancel()
        await turns()
        store.may_adopt.set()
        await turns()

        assert asking.cancelled()
        assert ["a"] == [spec.run_id for spec, _ in await log.adopt([])]

    run(test)


def test_who_waits_for_a_commit_may_leave() -> None:
    """The log goes on writing."""

    async def test(log: RunLog, store: Gate) -> None:
        store.may_commit.clear()
        log.create(a_run("a"), events_to("a", 2))
        leaving = asyncio.create_task(log.suspend())
        await turns()
        leaving.cancel()
        await turns()
        store.may_commit.set()
        log.create(a_run("b"), events_to("b", 2))

        assert 3 == len(await read(log, "b"))

    run(test)


def test_a_run_that_was_let_go_is_not_taken_back() -> None:
    """Not even if its last commit failed: another server may drive it by now."""

    async def test(log: RunLog, store: Gate) -> None:
        log.create(a_run("a"), [event("a", 0, EventKind.START)])
        await turns()
        store.failures = [StoreFailed()]
        log.append(event("a", 1))
        await log.release("a")

        assert [] == await log.adopt([])

    run(test)


def test_a_key_names_a_run_that_is_not_written_yet() -> None:
    """Though it has ended, and only its commit is still under way."""

    async def test(log: RunLog, store: Gate) -> None:
        store.may_commit.clear()
        log.create(a_run("a", key="k"), events_to("a", 2))
        await turns()

        found = await log.run_of_key("", "k")
        assert found is not None
        assert "a" == found.run_id
        assert await log.run_of_key("other", "k") is None

    run(test)
