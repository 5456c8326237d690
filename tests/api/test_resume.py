"""Runs that are interrupted: they pause, go on, are adopted; no token is lost or repeated."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from http_rig import call
from rig import DEADLINE_S, Rig, SteppedEngine, read, request, run, text_of, turns, until

from streamwell.backends.scripted import Faults
from streamwell.core.errors import (
    IdempotencyConflict,
    InvalidRequest,
    NotEnoughMemory,
    RunNotFound,
    ShuttingDown,
)
from streamwell.core.types import EventKind, FinishReason, RunEvent, RunRequest, RunTerms
from streamwell.service.admission import Admission
from streamwell.service.models import ModelTable
from streamwell.service.reader import Reader
from streamwell.service.run_log import RunLog
from streamwell.service.runs import RunService
from streamwell.service.served_model import ServedModel
from streamwell.telemetry import Metrics

pytestmark = pytest.mark.timeout(30)

#: Longer than any of these tests.
GRACE_S = 1000.0
ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def keyed(key: str, fingerprint: str = "f") -> RunRequest:
    return replace(request(), terms=RunTerms(idempotency_key=key, fingerprint=fingerprint))


async def take(reader: Reader, num_events: int) -> list[RunEvent]:
    """The first events of a reader that then leaves."""
    events: list[RunEvent] = []
    async for batch in reader.events():
        events += batch
        if len(events) >= num_events:
            break
    reader.close()
    return events


@pytest.mark.parametrize("num_tokens", [0, 1, 3])
def test_a_run_without_readers_pauses_and_goes_on(num_tokens: int) -> None:
    """Its place is free at once; who comes back in time gets the rest, as if nothing had been."""

    async def test(rig: Rig) -> None:
        reader = await rig.runs.start(request(n=2, max_tokens=6))
        rig.engine.allow(2 * num_tokens)
        seen = await take(reader, 2 + 2 * num_tokens)
        await turns()
        assert (0, 0) == (rig.engine.num_open, rig.admission.num_live)
        assert rig.runs.is_paused(reader.spec.run_id)

        again = await rig.runs.attach(reader.spec.run_id, "", seen[-1].seq)
        rig.engine.allow(100)
        events = seen + await read(again)
        again.close()

        assert list(range(len(events))) == [event.seq for event in events]
        assert ["abcdef"] * 2 == [text_of(events, index) for index in range(2)]
        assert events[-1].usage is not None
        assert 12 == events[-1].usage.completion_tokens

    run(test, grace_s=GRACE_S)


def test_a_run_that_goes_on_is_another_request() -> None:
    """What the engine says late of the one that was closed is not taken for the next one's."""

    async def test(rig: Rig) -> None:
        reader = await rig.runs.start(request(n=2))
        await turns()
        for _ in range(2):
            reader.close()
            await turns()
            reader = await rig.runs.attach(reader.spec.run_id, "")
            await turns()
        reader.close(resumable=False)
        assert 6 == len(set(rig.engine.request_ids)) == len(rig.engine.request_ids)

    run(test, grace_s=GRACE_S)


def test_a_reader_that_comes_back_at_once_stops_the_pause() -> None:
    """Between the cancelling of the run's task and its end somebody may come: it goes on."""

    async def test(rig: Rig) -> None:
        reader = await rig.runs.start(request())
        await turns()
        reader.close()
        again = await rig.runs.attach(reader.spec.run_id, "")
        rig.engine.allow(10)
        assert "abcde" == text_of(await read(again))
        again.close()

    run(test, grace_s=GRACE_S)


def test_a_run_that_nobody_comes_back_to_is_cancelled() -> None:
    """After the grace time it ends, and says how."""

    async def test(rig: Rig) -> None:
        reader = await rig.runs.start(request())
        await turns()
        assert rig.store.unended
        reader.close()
        await until(lambda: not rig.store.unended)
        *_, finish, end = await rig.store.events(reader.spec.run_id)
        assert (FinishReason.CANCELLED, None) == (finish.finish_reason, end.error)

    run(test, grace_s=0.001)


def test_a_server_that_ends_leaves_its_runs_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes: a reader that it sends away may come back to the next server."""

    async def test(rig: Rig) -> None:
        monkeypatch.setattr(type(rig.store), "is_durable", True)
        reader = await rig.runs.start(request())
        await turns()
        await rig.runs.drain(0)
        reader.close()
        run = rig.runs._live[reader.spec.run_id]

        assert (True, None) == (run.is_alone, run.grace)
        assert {reader.spec.run_id} == rig.store.unended

    run(test, grace_s=0.001)


def test_a_background_run_goes_on_alone() -> None:
    """Nobody needs to read it."""

    async def test(rig: Rig) -> None:
        reader = await rig.runs.start(replace(request(), terms=RunTerms(background=True)))
        reader.close()
        await turns()
        rig.engine.allow(5)
        await until(lambda: not rig.store.unended)
        assert "abcde" == text_of(await rig.store.events(reader.spec.run_id))

    run(test)


def test_any_number_of_readers_each_from_its_own_place() -> None:
    """Readers of one run see the same events, wherever they begin."""

    async def test(rig: Rig) -> None:
        first = await rig.runs.start(request())
        rig.engine.allow(3)
        await turns()
        others = [await rig.runs.attach(first.spec.run_id, "", seq) for seq in (-1, 0, 2)]
        rig.engine.allow(2)
        whole, *rest = [await read(reader) for reader in (first, *others)]
        assert [whole, whole[1:], whole[3:]] == rest
        late = await rig.runs.attach(first.spec.run_id, "", 3)
        assert whole[4:] == await read(late)
        for reader in (first, late, *others):
            reader.close()

    run(test)


def test_foreign_and_future_places_are_refused() -> None:
    """A run is its tenant's alone, and an event that was not shown cannot have been seen."""

    async def test(rig: Rig) -> None:
        reader = await rig.runs.start(request())
        await turns()
        for run_id, tenant in ((reader.spec.run_id, "x"), ("cmpl-0", "")):
            with pytest.raises(RunNotFound):
                await rig.runs.attach(run_id, tenant)
            with pytest.raises(RunNotFound):
                await rig.runs.cancel(run_id, tenant)
        for is_over in (False, True):
            if is_over:
                rig.engine.allow(10)
                await read(reader)
            for seq in (99, -2):
                with pytest.raises(InvalidRequest):
                    await rig.runs.attach(reader.spec.run_id, "", seq)
        reader.close()

    run(test)


@pytest.mark.parametrize("num_turns", range(6))
def test_a_cancelled_run_ends_whoever_leaves_meanwhile(num_turns: int) -> None:
    """The last reader leaves between the cancel and the end: there is no pause in it."""

    async def test(rig: Rig) -> None:
        reader = await rig.runs.start(request(max_tokens=20))
        rig.engine.allow(2)
        await turns()
        cancelling = asyncio.create_task(rig.runs.cancel(reader.spec.run_id, ""))
        await turns(num_turns)
        reader.close()
        await cancelling

        events = await rig.store.events(reader.spec.run_id)
        assert FinishReason.CANCELLED in [event.finish_reason for event in events]
        assert (0, False) == (rig.admission.num_live, rig.runs.is_paused(reader.spec.run_id))

    run(test, grace_s=1000.0)


def test_cancel_is_seen_by_all_and_harmless_again() -> None:
    """Every reader gets the end; a second cancel, also of a paused run, changes nothing."""

    async def test(rig: Rig) -> None:
        readers = [await rig.runs.start(request())]
        readers.append(await rig.runs.attach(readers[0].spec.run_id, ""))
        rig.engine.allow(2)
        await turns()
        for _ in range(2):
            await rig.runs.cancel(readers[0].spec.run_id, "")
        for reader in readers:
            *_, finish, end = await read(reader)
            assert (FinishReason.CANCELLED, None) == (finish.finish_reason, end.error)
            reader.close()
        paused = await rig.runs.start(request())
        await turns()
        paused.close()
        await turns()
        await rig.runs.cancel(paused.spec.run_id, "")
        assert not rig.store.unended

    run(test, grace_s=GRACE_S)


@pytest.mark.parametrize("died_at", [1, 3])
def test_a_first_token_comes_once(died_at: int) -> None:
    """Its time is counted once for each choice, whatever becomes of the engine after it."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(100)
        reader = await rig.runs.start(request(max_tokens=4))
        assert "abcd" == text_of(await read(reader))
        reader.close()
        metrics = b"".join((await call(rig, "GET", "/metrics")).bodies).decode()
        counts = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if "_count" in line)

        assert 1.0 == float(counts["streamwell_time_to_first_token_seconds_count"])
        assert rig.engine.request_ids[0] != rig.engine.request_ids[-1]

    run(test, faults=Faults(die_at_token=died_at))


def test_one_key_is_one_run() -> None:
    """At the same time, later, and after its end: the same run; another request: refused."""

    async def test(rig: Rig) -> None:
        readers = await asyncio.gather(*(rig.runs.start(keyed("k")) for _ in range(5)))
        rig.engine.allow(5)
        texts = [text_of(await read(reader)) for reader in readers]
        for reader in readers:
            reader.close()
        late = await rig.runs.start(keyed("k"))
        texts.append(text_of(await read(late)))
        assert ["abcde"] * 6 == texts
        assert 1 == len({reader.spec.run_id for reader in (*readers, late)})
        assert 5 == rig.engine.stats().num_steps
        with pytest.raises(IdempotencyConflict):
            await rig.runs.start(keyed("k", "other"))

    run(test)


def test_a_refused_request_leaves_its_key_free() -> None:
    """What was never accepted can be tried again under the same name."""

    async def test(rig: Rig) -> None:
        with pytest.raises(InvalidRequest):
            await rig.runs.start(replace(keyed("k"), prompts=("x" * 5000,)))
        (await rig.runs.start(keyed("k", "other"))).close()
        await turns()

    run(test)


def _server(rig: Rig) -> tuple[RunService, RunLog, SteppedEngine, ServedModel]:
    """Another server on the same store; its model is not loaded yet."""
    engine = SteppedEngine()
    model = ServedModel(("m",), engine, _letters, {})
    log = RunLog(rig.store)
    metrics = Metrics("0", lambda: {"m": engine.stats()})
    return (
        RunService(ModelTable([model]), log, Admission(8), metrics, grace_s=GRACE_S),
        log,
        engine,
        model,
    )


def _letters():  # noqa: ANN202 - the rig's own
    from rig import Letters

    return Letters()


@pytest.mark.parametrize("num_tokens", [0, 1, 4])
def test_a_server_goes_on_with_the_runs_of_one_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, num_tokens: int
) -> None:
    """It makes the run again from its log; the reader of before gets the rest, exactly."""

    async def test(rig: Rig) -> None:
        monkeypatch.setattr(type(rig.store), "is_durable", True)
        first = await rig.runs.start(request(n=2, max_tokens=6))
        rig.engine.allow(2 * num_tokens)
        await turns()
        seen = list(await rig.store.events(first.spec.run_id))
        await rig.runs.drain(0)
        with pytest.raises(ShuttingDown):
            await read(first)
        assert {first.spec.run_id} == rig.store.unended

        spec = first.spec
        monkeypatch.setattr(rig.store, "adopt", lambda models, _run_id: _as_list(spec, models))
        runs, log, engine, model = _server(rig)
        await log.open()
        await runs.recover()
        again = await runs.attach(spec.run_id, "", seen[-1].seq)
        await model.load()
        engine.allow(100)
        async with asyncio.timeout(DEADLINE_S):
            events = seen + await read(again)
        again.close()

        assert list(range(len(events))) == [event.seq for event in events]
        assert ["abcdef"] * 2 == [text_of(events, index) for index in range(2)]
        assert events[-1].usage is not None
        assert 12 == events[-1].usage.completion_tokens
        assert EventKind.END is events[-1].kind
        await engine.stop()

    run(test)


def test_a_run_goes_on_when_its_model_can_be_loaded_after_all() -> None:
    """Unloaded under a paused run, the model fails to come back; later it does."""

    async def test(rig: Rig) -> None:
        model, obstacles = rig.services.models.models[0], [NotEnoughMemory("0 MiB are free")]
        reader = await rig.runs.start(request(max_tokens=4))
        rig.engine.allow(2)
        await turns()
        seen = list(await rig.store.events(reader.spec.run_id))
        reader.close()
        await turns()
        await model.unload()
        again = await rig.runs.attach(reader.spec.run_id, "", seen[-1].seq)
        model._check_memory = lambda: _raise_once(obstacles)
        with pytest.raises(NotEnoughMemory):
            await model.load()
        await turns()
        await rig.runs.recover()
        await turns()
        assert "failed" == model.state

        await model.load()
        await rig.runs.recover()
        rig.engine.allow(100)
        async with asyncio.timeout(DEADLINE_S):
            events = seen + await read(again)
        again.close()

        assert "abcd" == text_of(events)
        assert list(range(len(events))) == [event.seq for event in events]

    run(test, grace_s=GRACE_S)


def _raise_once(errors: list[NotEnoughMemory]) -> None:
    if errors:
        raise errors.pop()


async def _as_list(spec: object, models: object) -> list[object]:
    assert ["m"] == models
    return [spec]
