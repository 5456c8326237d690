"""The log cannot be written: those who are concerned hear of it, and nobody else."""

from __future__ import annotations

import asyncio

import pytest
from http_rig import call
from rig import Rig, read, request, run, text_of, turns

from streamwell.core.errors import LeaseLost, RunElsewhere, StoreFailed
from streamwell.core.types import EventKind, FinishReason
from streamwell.service.reader import Reader

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
    """While a run whose log broke is given up, the commits of its neighbours go through.

    Nobody has cancelled it: it counts as failed.
    """

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
        counted = rig.services.metrics.render()
        assert b'streamwell_request_success_total{finished_reason="error"} 1.0' in counted
        assert b'finished_reason="cancelled"} 1.0' not in counted

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


async def _broken(rig: Rig) -> Reader:
    """A run whose log broke after two of its six tokens."""
    reader = await rig.runs.start(request(max_tokens=6))
    rig.engine.allow(2)
    await turns()
    rig.store.failures = [StoreFailed("disk full")]
    rig.engine.allow(1)
    await turns()
    return reader


def test_a_run_whose_log_broke_goes_on() -> None:
    """Once the store works again: from what was shown on, no token lost or repeated."""

    async def test(rig: Rig) -> None:
        reader = await _broken(rig)
        with pytest.raises(StoreFailed):
            await read(reader)
        reader.close()
        with pytest.raises(RunElsewhere):
            await rig.runs.attach(reader.spec.run_id, "")
        await rig.runs.recover()
        again = await rig.runs.attach(reader.spec.run_id, "")
        rig.engine.allow(100)
        events = await read(again)
        again.close()

        assert "abcdef" == text_of(events)
        assert list(range(len(events))) == [event.seq for event in events]

    run(test, grace_s=1000.0)


def test_a_reader_that_hears_of_it_first_leaves_no_pause() -> None:
    """A stream closes as soon as its run's log breaks: the run goes on at once all the same."""

    async def test(rig: Rig) -> None:
        reader = await rig.runs.start(request(max_tokens=6))
        rig.engine.allow(2)
        await turns()

        async def follow() -> None:
            try:
                await read(reader)
            finally:
                reader.close()

        following = asyncio.create_task(follow())
        await turns()
        rig.store.failures = [StoreFailed("disk full")]
        rig.engine.allow(1)
        with pytest.raises(StoreFailed):
            await following
        await turns()
        await rig.runs.recover()
        again = await rig.runs.attach(reader.spec.run_id, "")
        rig.engine.allow(100)
        assert "abcdef" == text_of(await read(again))
        again.close()

    run(test, grace_s=1000.0)


def test_a_run_whose_log_broke_can_be_cancelled() -> None:
    """What was shown of it stays, with an end."""

    async def test(rig: Rig) -> None:
        reader = await _broken(rig)
        reader.close()
        await rig.runs.cancel(reader.spec.run_id, "")
        events = await rig.store.events(reader.spec.run_id)

        assert "ab" == text_of(events)
        assert (FinishReason.CANCELLED, EventKind.END) == (
            events[-2].finish_reason,
            events[-1].kind,
        )
        assert not rig.store.unended

    run(test, grace_s=1000.0)


def test_a_run_that_was_not_kept_has_no_place() -> None:
    """Its caller hears that, and nothing of the database's own words."""

    async def test(rig: Rig) -> None:
        rig.store.failures = [StoreFailed('no host "db.internal"')]
        answer = await call(rig, "POST", "/v1/runs", {"prompt": "a", "background": True})

        assert (503, "store_failed") == (answer.status, answer.json["error"]["code"])
        assert "db.internal" not in answer.json["error"]["message"]

    run(test)


def test_what_a_database_says_is_not_for_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may name hosts, users and paths."""

    async def test(rig: Rig) -> None:
        async def fails(_run_id: str) -> None:
            raise StoreFailed('no password for user "streamwell"')

        monkeypatch.setattr(rig.store, "run", fails)
        answer = await call(rig, "GET", "/v1/runs/text-0")

        assert (503, "store_failed") == (answer.status, answer.json["error"]["code"])
        assert "streamwell" not in answer.json["error"]["message"]

    run(test)


async def _readiness(rig: Rig) -> tuple[int, str]:
    answer = await call(rig, "GET", "/ready")
    return answer.status, answer.json["status"]


def test_a_server_that_cannot_write_is_not_ready() -> None:
    """From the first commit that fails until something can be written, if only on trial."""

    async def test(rig: Rig) -> None:
        assert (200, "ready") == await _readiness(rig)
        rig.store.failures = [StoreFailed("the disk of db.internal is full")] * 2
        reader = await rig.runs.start(request())
        await turns()
        reader.close()
        answer = await call(rig, "GET", "/ready")
        assert (503, "store_failed") == (answer.status, answer.json["status"])
        assert "db.internal" not in answer.json["error"]  # anybody may ask
        assert int(answer.headers["retry-after"]) > 0
        with pytest.raises(StoreFailed):
            await rig.runs.recover()
        assert (503, "store_failed") == await _readiness(rig)
        await rig.runs.recover()
        assert (200, "ready") == await _readiness(rig)

    run(test)


def test_a_commit_that_is_kept_makes_it_ready_again() -> None:
    """Whatever comes first, a run or a trial."""

    async def test(rig: Rig) -> None:
        rig.store.failures = [StoreFailed("disk full")]
        rig.engine.allow(100)
        for expected in (503, 200):
            reader = await rig.runs.start(request())
            await turns()
            reader.close()
            assert expected == (await _readiness(rig))[0]

    run(test)


def test_one_run_that_cannot_be_kept_is_no_failure_of_the_store() -> None:
    """Another one can be."""

    async def test(rig: Rig) -> None:
        rig.store.failures = [ValueError("there already")]
        reader = await rig.runs.start(request())
        await turns()
        reader.close()
        assert (200, "ready") == await _readiness(rig)

    run(test)


def test_a_store_that_could_not_be_opened_again_is_opened_later() -> None:
    """A lease that is lost while the database fails does not leave the server without a log."""

    async def test(rig: Rig) -> None:
        open_store, failures = rig.store.open, [StoreFailed("no database")]

        async def fail_once() -> None:
            if failures:
                raise failures.pop()
            await open_store()

        rig.store.open = fail_once  # type: ignore[method-assign]
        rig.store.failures = [LeaseLost()]
        reader = await rig.runs.start(request())
        await turns()
        reader.close()
        assert (503, "store_failed") == await _readiness(rig)
        await rig.runs.recover()
        assert (200, "ready") == await _readiness(rig)
        rig.engine.allow(100)
        reader = await rig.runs.start(request())
        assert "abcde" == text_of(await read(reader))
        reader.close()

    run(test)
