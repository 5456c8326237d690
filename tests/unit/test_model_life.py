"""A model is loaded and unloaded as it is wanted, whoever uses it meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
from test_served_model import Words

from streamwell.backends.scripted import Faults, ScriptedEngine
from streamwell.core.errors import LoadError, ModelUnloaded, NotEnoughMemory
from streamwell.service.lifecycle import Phase
from streamwell.service.models import ModelTable
from streamwell.service.served_model import ServedModel
from streamwell.wiring.chores import load_all

#: Only ends a test that would hang.
DEADLINE_S = 10


def run(
    test: Callable[[ServedModel], Awaitable[None]],
    *,
    load_error: str | None = None,
    check_memory: Callable[[], None] = lambda: None,
    is_at_start: bool = True,
) -> None:
    """Run a test with a model that is not loaded yet, and stop it."""
    asyncio.run(
        with_model(test, load_error=load_error, check_memory=check_memory, is_at_start=is_at_start)
    )


async def with_model(
    test: Callable[[ServedModel], Awaitable[None]],
    *,
    load_error: str | None = None,
    check_memory: Callable[[], None] = lambda: None,
    is_at_start: bool = True,
) -> None:
    faults = Faults(load_error=load_error)
    engine = ScriptedEngine(lambda _ids, _seed, _index: 1, vocab_size=8, faults=faults)
    model = ServedModel(
        ("m",),
        engine,
        lambda: Words(8),
        {},
        is_at_start=is_at_start,
        check_memory=check_memory,
    )
    async with asyncio.timeout(DEADLINE_S):
        await test(model)
        await model.stop()


def test_an_unloaded_model_keeps_no_tokenizer_at_work() -> None:
    """What encodes is closed, whoever may still hold it."""

    async def test(model: ServedModel) -> None:
        await model.load()
        encoder, _ = model.require()
        await model.unload()

        assert isinstance(encoder, Words)
        assert encoder.is_closed

    run(test)


async def turns() -> None:
    """Let the other tasks do all that they can do."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_unloaded_it_is_refused_until_it_is_loaded_again() -> None:
    """What an operator unloads stays unloaded; loaded again it is what it was."""

    async def test(model: ServedModel) -> None:
        await model.load()
        before = model.require()
        await model.unload()

        assert ("unloaded", None, False) == (model.state, model.info, model.is_wanted)
        await model.wake()  # a request may not load it
        with pytest.raises(ModelUnloaded):
            model.require()
        await model.load()
        assert ("ready", before) == (model.state, model.require())

    run(test)


def test_an_unload_waits_for_those_who_use_it() -> None:
    """New requests are refused meanwhile; the last user's leaving ends the wait."""

    async def test(model: ServedModel) -> None:
        await model.load()
        model.hold()
        model.hold()
        unloading = asyncio.create_task(model.unload())
        model.release()
        await turns()

        assert ("unloading", True) == (model.state, model.is_ready)
        with pytest.raises(ModelUnloaded):
            model.require()
        model.release()
        await unloading
        assert ("unloaded", False) == (model.state, model.is_ready)

    run(test)


def test_a_load_calls_an_unload_off() -> None:
    """The latest wish counts: nothing is lost of a model that is wanted again."""

    async def test(model: ServedModel) -> None:
        await model.load()
        info = model.info
        model.hold()
        unloading = asyncio.create_task(model.unload())
        await turns()
        await model.load()
        model.release()
        await unloading

        assert "ready" == model.state
        assert info is model.info

    run(test)


def test_a_load_while_the_engine_goes_away_makes_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that wakes a model whose idle engine is just ending gets it, and no refusal."""

    async def test(model: ServedModel) -> None:
        leaving, may_leave = asyncio.Event(), asyncio.Event()
        stop = model.engine.stop

        async def slow_stop() -> None:
            leaving.set()
            await may_leave.wait()
            await stop()

        monkeypatch.setattr(model.engine, "stop", slow_stop)
        await model.load()
        unloading = asyncio.create_task(model.unload(loads_on_request=True))
        await leaving.wait()
        waking = asyncio.create_task(model.wake())
        await turns()
        may_leave.set()
        await asyncio.gather(unloading, waking)

        assert "ready" == model.state
        model.require()

    run(test)


def test_who_wants_an_idle_model_waits_for_no_other() -> None:
    """While another one is loaded it cannot be unloaded yet, so it is still there."""

    async def test(model: ServedModel) -> None:
        await model.load()
        async with model._turn:  # another one's load
            unloading = asyncio.create_task(model.unload(loads_on_request=True))
            await turns()
            await model.wake()
            assert (Phase.LOADED, True) == (model.phase, model.is_ready)
        await unloading
        assert model.is_ready

    run(test)


def test_an_unload_during_a_load_waits_for_its_end() -> None:
    """The two take turns, and the later one wins."""

    async def test(model: ServedModel) -> None:
        loading = model.load()
        await model.unload()

        assert loading.done()
        assert "unloaded" == model.state

    run(test)


def test_an_idle_model_goes_and_comes_back_by_itself() -> None:
    """Only when nobody uses it; the next request loads it."""

    async def test(model: ServedModel) -> None:
        await model.load()
        with model.in_use():
            await model.unload_if_idle(0.0)
            assert "ready" == model.state
        await model.unload_if_idle(3600.0)
        assert "ready" == model.state

        await model.unload_if_idle(0.0)
        assert ("unloaded", True) == (model.state, model.is_wanted)
        await model.wake()
        assert "ready" == model.state
        assert model.require()

    run(test)


def test_a_model_that_cannot_be_loaded_holds_up_no_other() -> None:
    """Where each has a turn of its own, as on Ray; the start is told of the failure."""

    async def test(model: ServedModel) -> None:
        async def other(good: ServedModel) -> None:
            with pytest.raises(LoadError, match="no weights"):
                await load_all([model, good])
            await good.load()
            assert ("failed", "ready") == (model.state, good.state)

        await with_model(other)

    run(test, load_error="no weights")


def test_a_caller_is_not_told_where_an_idle_model_was() -> None:
    """Why it cannot come back is for the operator; that memory is short is for everybody."""

    async def test(model: ServedModel) -> None:
        with pytest.raises(LoadError, match="/private/place"):
            await model.load()
        await model.unload(loads_on_request=True)
        with pytest.raises(LoadError) as caught:
            await model.wake()
        assert "/private/place" not in str(caught.value)
        assert "/private/place" in str(model.error)

    async def lacks_memory(model: ServedModel) -> None:
        model.loads_on_request = True
        model.phase = Phase.UNLOADED
        with pytest.raises(NotEnoughMemory, match="2 GiB"):
            await model.wake()

    def refuse() -> None:
        raise NotEnoughMemory("it wants 2 GiB")

    run(test, load_error="no file /private/place")
    run(lacks_memory, check_memory=refuse)


def test_a_run_that_goes_on_waits_for_its_model() -> None:
    """Of an unloaded model until somebody loads it; of an idle one it is the load."""

    async def test(model: ServedModel) -> None:
        await model.load()
        await model.unload()
        waiting = asyncio.create_task(model.wait_until_up())
        await turns()
        assert not waiting.done()
        await model.load()
        assert model.require() == await waiting

        await model.unload(loads_on_request=True)
        assert 2 == len(await model.wait_until_up())

    run(test)


@pytest.mark.parametrize("is_engine_slow", [True, False])
def test_a_run_that_goes_on_during_an_unload_gets_the_next_load(
    monkeypatch: pytest.MonkeyPatch, *, is_engine_slow: bool
) -> None:
    """Whatever of the idle model is gone already."""

    async def test(model: ServedModel) -> None:
        await model.load()
        encoder, _ = model.require()
        leaving, may_leave = asyncio.Event(), threading.Event()
        loop, stop = asyncio.get_running_loop(), model.engine.stop

        def wait() -> None:
            loop.call_soon_threadsafe(leaving.set)
            may_leave.wait(DEADLINE_S)

        async def slow_stop() -> None:
            await asyncio.to_thread(wait)
            await stop()

        if is_engine_slow:
            monkeypatch.setattr(model.engine, "stop", slow_stop)
        else:
            monkeypatch.setattr(encoder, "close", wait)
        unloading = asyncio.create_task(model.unload(loads_on_request=True))
        await leaving.wait()
        waiting = asyncio.create_task(model.wait_until_up())
        await turns()
        assert not waiting.done()
        may_leave.set()
        await unloading

        found = await waiting
        assert found == model.require()

    run(test)


def test_a_failed_load_says_why_and_can_be_tried_again() -> None:
    """Until then requests get the reason."""

    async def test(model: ServedModel) -> None:
        for _ in range(2):
            with pytest.raises(LoadError, match="bad weights"):
                await model.load()

            assert ("failed", "bad weights") == (model.state, model.error)
            with pytest.raises(LoadError, match="'m' could not be loaded; its entry"):
                model.require()  # the reason may name places on this machine
            with pytest.raises(LoadError, match="bad weights"):
                await model.wait_until_up()

    run(test, load_error="bad weights")


def test_what_does_not_fit_is_not_begun() -> None:
    """The check comes before the engine starts; when there is room, a load works."""
    obstacles = [NotEnoughMemory("3 MiB are free")]

    def check() -> None:
        if obstacles:
            raise obstacles.pop()

    async def test(model: ServedModel) -> None:
        with pytest.raises(NotEnoughMemory, match="3 MiB"):
            await model.load()
        assert "failed" == model.state
        await model.load()
        assert ("ready", None) == (model.state, model.error)

    run(test, check_memory=check)


def test_readiness_hangs_on_what_was_there_at_the_start() -> None:
    """Not on a model that is loaded later, nor on one that was unloaded."""

    async def at_start(model: ServedModel) -> None:
        assert model.is_expected
        await model.load()
        await model.unload()
        assert not model.is_expected

    async def later(model: ServedModel) -> None:
        assert "unloaded" == model.state
        model.load()
        assert not model.is_expected

    run(at_start)
    run(later, is_at_start=False)


def test_models_are_loaded_one_after_the_other() -> None:
    """Those that share a turn: each finds the memory as the one before has left it."""
    num_loading: list[int] = []

    async def scenario() -> None:
        turn = asyncio.Lock()
        engines = [
            ScriptedEngine(lambda _ids, _seed, _index: 1, vocab_size=8, load_s=0.001)
            for _ in range(3)
        ]

        def check() -> None:
            num_loading.append(sum(engine.status().state == "loading" for engine in engines))

        models = [
            ServedModel(("m",), engine, lambda: Words(8), {}, turn=turn, check_memory=check)
            for engine in engines
        ]
        await asyncio.gather(*(model.load() for model in models))
        await asyncio.gather(*(model.stop() for model in models))

    asyncio.run(scenario())

    assert [0, 0, 0] == num_loading


def test_a_model_that_two_requests_find_at_once_is_one() -> None:
    """Looking for it takes a thread each; the first one in is the model of this name."""
    made: list[ServedModel] = []
    both_look = threading.Barrier(2, timeout=DEADLINE_S)

    def find(name: str) -> ServedModel:
        both_look.wait()
        engine = ScriptedEngine(lambda _ids, _seed, _index: 1, vocab_size=8)
        made.append(ServedModel((name,), engine, lambda: Words(8), {}, is_at_start=False))
        return made[-1]

    async def scenario() -> None:
        table = ModelTable([], find)
        first, second = await asyncio.gather(table.discover("m"), table.discover("m"))
        assert first is second
        assert (first,) == table.models

    asyncio.run(scenario())

    assert 2 == len(made)
