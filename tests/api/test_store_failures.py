"""The log cannot be written: those who are concerned hear of it, and nobody else."""

from __future__ import annotations

import asyncio

import pytest
from rig import Rig, read, request, run, text_of, turns

from streamwell.core.errors import LeaseLost, RunElsewhere, StoreFailed

pytestmark = pytest.mark.timeout(30)

FAILURES = [StoreFailed("disk full"), ValueError("there already"), OSError("no space")]


@pytest.mark.parametrize("failure", FAILURES, ids=repr)
def test_a_run_that_cannot_be_saved_is_not_shown(failure: Exception) -> None:
    """Its reader gets `StoreFailed`, whether it reads at once or a moment later."""

    async def test(rig: Rig) -> None:
        for num_turns in (0, 50):
            rig.store.failures = [failure]
            reader = await rig.runs.start(request())
            await turns(num_turns)
            with pytest.raises(StoreFailed):
                await read(reader)
            reader.close()
            await turns()

    run(test)


def test_a_broken_run_breaks_no_other() -> None:
    """While a run whose log broke is given up, the commits of its neighbours go through."""

    async def test(rig: Rig) -> None:
        rig.store.failures = [StoreFailed("disk full")]
        broken = await rig.runs.start(request(max_tokens=20))
        await turns()
        good = await rig.runs.start(request(max_tokens=5))
        reading = asyncio.create_task(read(good))
        rig.engine.allow(4)
        await turns()
        broken.close()
        rig.engine.allow(100)
        assert "abcde" == text_of(await reading)
        good.close()
        await turns()

        assert await rig.store.run(broken.spec.run_id) is None
        assert not rig.store.unended

    run(test)


def test_a_log_that_broke_has_no_gap() -> None:
    """After a failed commit nothing more of that run is saved: what is there is a beginning."""

    async def test(rig: Rig) -> None:
        reader = await rig.runs.start(request(max_tokens=20))
        reading = asyncio.create_task(read(reader))
        rig.engine.allow(3)
        await turns()
        rig.store.failures = [StoreFailed("disk full")]
        rig.engine.allow(1)
        await turns()
        rig.engine.allow(3)
        with pytest.raises(StoreFailed):
            await reading
        reader.close()
        await turns()

        events = await rig.store.events(reader.spec.run_id)
        assert "abc" == text_of(events)
        assert list(range(4)) == [event.seq for event in events]

    run(test)


def test_the_next_run_is_saved_again() -> None:
    """A store that works again is used again."""

    async def test(rig: Rig) -> None:
        rig.store.failures = [StoreFailed("disk full")] * 2
        rig.engine.allow(100)
        for _ in range(4):
            reader = await rig.runs.start(request(max_tokens=3))
            await turns()
            reader.close()
            await turns()
        reader = await rig.runs.start(request())
        assert "abcde" == text_of(await read(reader))
        reader.close()

    run(test)


def test_a_lost_lease_ends_what_is_live_and_is_renewed() -> None:
    """Runs that another server has taken over are not ours to show; those that come are."""

    async def test(rig: Rig) -> None:
        taken = [await rig.runs.start(request(max_tokens=20)) for _ in range(2)]
        await turns()
        leases = []
        open_store = rig.store.open

        async def count() -> None:
            leases.append(1)
            await open_store()

        rig.store.open = count  # type: ignore[method-assign]
        rig.store.failures = [LeaseLost()]
        rig.engine.allow(1)
        await turns()
        for reader in taken:
            with pytest.raises(StoreFailed):
                await read(reader)
            reader.close()
        assert [1] == leases
        rig.engine.allow(100)
        reader = await rig.runs.start(request())
        assert "abcde" == text_of(await read(reader))
        reader.close()

    run(test)


def test_a_run_whose_log_broke_goes_on() -> None:
    """Once the store works again: from what was shown on, no token lost or repeated."""

    async def test(rig: Rig) -> None:
        reader = await rig.runs.start(request(max_tokens=6))
        rig.engine.allow(2)
        await turns()
        rig.store.failures = [StoreFailed("disk full")]
        rig.engine.allow(1)
        await turns()
        with pytest.raises(StoreFailed):
            await read(reader)
        reader.close()
        with pytest.raises(RunElsewhere):
            await rig.runs.attach(reader.spec.run_id, "")
        with pytest.raises(RunElsewhere):
            await rig.runs.cancel(reader.spec.run_id, "")
        await rig.runs.recover()
        again = await rig.runs.attach(reader.spec.run_id, "")
        rig.engine.allow(100)
        events = await read(again)
        again.close()

        assert "abcdef" == text_of(events)
        assert list(range(len(events))) == [event.seq for event in events]

    run(test, grace_s=1000.0)
