"""Runs: who reads, who leaves, who is cut off; and that every run has exactly one last word."""

from __future__ import annotations

import asyncio

import pytest
from rig import Rig, read, request, run, text_of, turns, until

from streamwell.backends.scripted import Faults
from streamwell.core.errors import InvalidRequest, ModelNotFound, Overloaded, ShuttingDown
from streamwell.core.types import EventKind, FinishReason, RunEvent

pytestmark = pytest.mark.timeout(30)


def _check_whole(events: list[RunEvent], num_choices: int) -> None:
    """A log is dense, starts and finishes every choice once, and ends once, at the end."""
    kinds = [event.kind for event in events]
    assert list(range(len(events))) == [event.seq for event in events]
    assert [EventKind.START] * num_choices == kinds[:num_choices]
    assert num_choices == kinds.count(EventKind.START) == kinds.count(EventKind.FINISH)
    assert list(range(num_choices)) == sorted(
        event.index for event in events if event.kind is EventKind.FINISH
    )
    assert [EventKind.END] == kinds[-1:]
    assert 1 == kinds.count(EventKind.END)


def test_a_run_is_generated_logged_and_read() -> None:
    """The events of a run hold its text, its reason and its usage, and are all in the store."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(5)
        reader = await rig.runs.start(request())
        events = await read(reader)
        reader.close()

        _check_whole(events, 1)
        assert "abcde" == text_of(events)
        assert FinishReason.LENGTH is events[-2].finish_reason
        assert events[-1].usage is not None
        assert (2, 5) == (events[-1].usage.prompt_tokens, events[-1].usage.completion_tokens)
        assert events == await rig.store.events(reader.spec.run_id)
        assert not rig.store.unended

    run(test)


def test_choices_end_each_for_itself() -> None:
    """Three choices finish in any order; the run ends after the last of them."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(15)
        reader = await rig.runs.start(request(n=3))
        events = await read(reader)
        reader.close()

        _check_whole(events, 3)
        assert ["abcde"] * 3 == [text_of(events, index) for index in range(3)]
        assert events[-1].usage is not None
        assert 15 == events[-1].usage.completion_tokens

    run(test)


def test_without_grace_the_last_reader_that_leaves_cancels() -> None:
    """Without a reader nothing burns: at once the engine's work ends and the place is free."""

    async def test(rig: Rig) -> None:
        reader = await rig.runs.start(request(n=2, max_tokens=100))
        rig.engine.allow(6)
        await turns()
        num_steps = rig.engine.stats().num_steps
        reader.close()
        rig.engine.allow(50)
        await turns()

        events = await rig.store.events(reader.spec.run_id)
        _check_whole(events, 2)
        assert rig.engine.stats().num_steps <= num_steps + 1
        assert (0, 0) == (rig.engine.num_open, rig.admission.num_live)
        reasons = [e.finish_reason for e in events if e.kind is EventKind.FINISH]
        assert [FinishReason.CANCELLED] * 2 == reasons
        assert events[-1].error is None

    run(test)


@pytest.mark.parametrize("num_turns", range(8))
def test_a_reader_may_leave_at_any_moment(num_turns: int) -> None:
    """Also before the run's own task has begun: the log has its end and the place is free."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(100)
        reader = await rig.runs.start(request(max_tokens=100))
        await turns(num_turns)
        reader.close()
        await turns()

        _check_whole(await rig.store.events(reader.spec.run_id), 1)
        assert 0 == rig.admission.num_live

    run(test)


def test_closing_twice_is_closing_once() -> None:
    """A reader that is closed again takes no other reader's place."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(5)
        reader = await rig.runs.start(request())
        events = await read(reader)
        reader.close()
        reader.close()
        assert FinishReason.LENGTH is events[-2].finish_reason
        assert b"streamwell_client_disconnects_total 0.0" in rig.services.metrics.render()

    run(test)


def test_admission_is_exact() -> None:
    """Choices are counted; what does not fit is refused at once, and fits again later."""

    async def test(rig: Rig) -> None:
        first = await rig.runs.start(request(n=5))
        with pytest.raises(Overloaded):
            await rig.runs.start(request(n=4))
        second = await rig.runs.start(request(n=3))
        assert 8 == rig.admission.num_live
        first.close()
        await turns()
        third = await rig.runs.start(request(n=5))
        second.close()
        third.close()
        await turns()

    run(test, limit=8)


def test_what_can_never_be_admitted_is_the_callers_mistake() -> None:
    """More choices than there are places in all: coming back later would not help."""

    async def test(rig: Rig) -> None:
        with pytest.raises(InvalidRequest):
            await rig.runs.start(request(n=9))

    run(test, limit=8)


def test_a_refused_request_takes_no_place() -> None:
    """Whatever is wrong with it, and whenever its caller gives up, the place is given back."""

    async def test(rig: Rig) -> None:
        with pytest.raises(InvalidRequest):
            await rig.runs.start(request("x" * 5000))
        with pytest.raises(ModelNotFound):
            await rig.runs.start(request(model="nobody"))
        starting = asyncio.create_task(rig.runs.start(request()))
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        assert 0 == rig.admission.num_live

    run(test)


def test_a_dead_engine_costs_a_pause() -> None:
    """The next engine goes on after the last token: no error, no token lost or repeated."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(100)
        reader = await rig.runs.start(request(n=2, max_tokens=9))
        events = await read(reader)
        reader.close()

        _check_whole(events, 2)
        assert ["abcdefghi"] * 2 == [text_of(events, index) for index in range(2)]
        assert {FinishReason.LENGTH} == {e.finish_reason for e in events if e.finish_reason}
        assert events[-1].usage is not None
        assert 18 == events[-1].usage.completion_tokens

    run(test, faults=Faults(die_at_token=3))


def test_a_run_that_kills_every_engine_ends_with_an_error() -> None:
    """What was generated stays, every choice finishes as failed, and the end tells why."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(100)
        reader = await rig.runs.start(request(n=2, max_tokens=9))
        events = await read(reader)
        reader.close()

        _check_whole(events, 2)
        assert "abc" == text_of(events)
        assert {FinishReason.ERROR} == {e.finish_reason for e in events if e.finish_reason}
        assert events[-1].error is not None
        assert "engine" in events[-1].error

    run(test, faults=Faults(die_at_token=3, is_poisoned=True))


def test_a_failed_sequence_leaves_other_runs_alone() -> None:
    """The run of a sequence that fails ends with an error; a run beside it ends well."""

    async def test(rig: Rig) -> None:
        long = await rig.runs.start(request(max_tokens=9))
        short = await rig.runs.start(request(max_tokens=3))
        rig.engine.allow(100)
        failed, fine = await read(long), await read(short)
        for reader in (long, short):
            reader.close()

        assert failed[-1].error is not None
        assert (None, "abc") == (fine[-1].error, text_of(fine))

    run(test, faults=Faults(fail_at_token=3))


def test_drain_lets_runs_end() -> None:
    """Nobody comes in any more, who is in gets all; the drain is over when they are."""

    async def test(rig: Rig) -> None:
        reader = await rig.runs.start(request())
        draining = asyncio.create_task(rig.runs.drain(60))
        await turns()
        assert rig.runs.is_draining
        assert not draining.done()
        with pytest.raises(ShuttingDown):
            await rig.runs.start(request())
        rig.engine.allow(5)
        await draining
        events = await read(reader)
        reader.close()
        assert ("abcde", None) == (text_of(events), events[-1].error)

    run(test)


def test_who_is_on_the_way_in_is_refused_too() -> None:
    """A request that is still being encoded when the drain begins is not cut off later."""

    async def test(rig: Rig) -> None:
        starting = asyncio.create_task(rig.runs.start(request()))
        await until(lambda: rig.admission.num_live == 1)
        await rig.runs.drain(60)
        with pytest.raises(ShuttingDown):
            await starting

    run(test)


def test_drain_cuts_what_takes_too_long() -> None:
    """After the time, live runs end with an error that says why, and the books balance."""

    async def test(rig: Rig) -> None:
        reader = await rig.runs.start(request(n=2))
        reading = asyncio.create_task(read(reader))
        await rig.runs.drain(0.01)
        events = await reading
        reader.close()

        _check_whole(events, 2)
        assert events[-1].error is not None
        assert "shutting down" in events[-1].error
        assert 0 == rig.admission.num_live

    run(test)
