"""A replica among others, of which Ray chooses the one with the shortest queue."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from engines import a_request, broken_scripted_engine, eventually, scripted_engine
from local_replicas import REPORT_S, LocalReplicas

from streamwell.backends.ray_serve.engine import RayServeEngine
from streamwell.backends.ray_serve.messages import Ask, encode
from streamwell.backends.ray_serve.replica import Replica
from streamwell.core.engine_state import EngineState
from streamwell.core.errors import LoadError, SequenceFailed
from streamwell.core.ports import Engine

NUM_TURNS = 100


async def _answers(engine: Engine) -> tuple[int, bool]:
    """How many answers a request gets from a replica of this engine, and if it ends by itself."""
    replica, answers = Replica(engine), list[bytes]()
    await replica.start()

    async def ask() -> None:
        async for answer in replica.generate(encode(Ask(a_request("r", max_tokens=2)))):
            answers.append(answer)

    asking = asyncio.create_task(ask())
    if not replica.is_failed:
        await asking
    for _ in range(NUM_TURNS):
        await asyncio.sleep(0)
    has_ended, num_answers = asking.done(), len(answers)
    await replica.abort(["r"])
    await asking
    await replica.stop()
    return num_answers, has_ended


def test_a_replica_that_cannot_load_again_is_not_the_quickest() -> None:
    """Its requests wait until Ray ends it, or they are aborted: a refusal would draw more."""
    assert (0, False) == asyncio.run(_answers(broken_scripted_engine()))
    num_answers, has_ended = asyncio.run(_answers(scripted_engine()))
    assert (True, True) == (num_answers > 0, has_ended)


async def _ends_when_aborted_after(num_turns: int) -> bool:
    """Whether a stream ends, so many turns of the event loop after it was asked for."""
    replica = Replica(broken_scripted_engine())  # it never answers
    await replica.start()

    async def ask() -> None:
        async for _ in replica.generate(encode(Ask(a_request("r")))):
            pass

    asking = asyncio.create_task(ask())
    for _ in range(num_turns):
        await asyncio.sleep(0)
    await replica.abort(["r"])
    done, _ = await asyncio.wait([asking], timeout=5)
    await replica.stop()
    return bool(done)


@pytest.mark.parametrize("num_turns", range(4))
def test_an_abort_ends_a_request_however_early_it_comes(num_turns: int) -> None:
    """Before the replica has it, before it has begun to work on it, and after."""
    assert asyncio.run(_ends_when_aborted_after(num_turns))


async def _delivered_while_another_gateway_unloads() -> tuple[int, bool]:
    """How many tokens a stream gets whose adapter others give up; whether it can come back."""
    replicas = LocalReplicas([scripted_engine()])
    mine, other = (RayServeEngine(replicas, report_s=REPORT_S) for _ in range(2))
    for engine in (mine, other):
        engine.start()
        await engine.ready()
        await engine.add_adapter("one", "/one")
    num_tokens = 0
    async for delta in mine.generate(replace(a_request("r", max_tokens=20), adapter="one")):
        num_tokens += len(delta.token_ids)
        await other.remove_adapter("one")
    await other.remove_adapter("one")
    with pytest.raises(SequenceFailed):
        async for _ in other.generate(replace(a_request("s"), adapter="one")):
            pass
    again = [d async for d in mine.generate(replace(a_request("t", max_tokens=2), adapter="one"))]
    for engine in (mine, other):
        await engine.stop()
    return num_tokens, bool(again)


def test_a_gateway_that_unloads_an_adapter_takes_it_from_nobody() -> None:
    """Streams of others go on; who names it later brings its folder along."""
    assert (20, True) == asyncio.run(_delivered_while_another_gateway_unloads())


async def _adds_beside_a_dead_engine(num_alive: int) -> None:
    replicas = LocalReplicas([scripted_engine() for _ in range(num_alive)])
    engine = RayServeEngine(replicas, report_s=REPORT_S)
    engine.start()
    await engine.ready()
    dead = Replica(scripted_engine())  # it has not been started
    replicas.replicas.append(dead)
    await engine.add_adapter("one", "/one")
    await engine.stop()


def test_an_adapter_does_not_wait_for_every_replica() -> None:
    """One whose engine is being restarted gets it with the requests that name it."""
    asyncio.run(_adds_beside_a_dead_engine(1))


async def _is_up_after_a_failure() -> bool:
    """Whether a gateway comes up whose only replica has failed, and is replaced then."""
    replicas = LocalReplicas([broken_scripted_engine()])
    engine = RayServeEngine(replicas, report_s=REPORT_S)
    engine.start()
    loading = asyncio.create_task(engine.ready())
    await eventually(lambda: replicas.num_looks > 2)
    assert EngineState.STARTING is engine.status().state
    other = Replica(scripted_engine())
    await other.start()
    replicas.replicas[:] = [other]
    info = await loading
    await engine.stop()
    return info.max_model_len > 0


def test_replicas_that_have_failed_are_no_end() -> None:
    """Ray puts others in their place: a gateway that starts meanwhile waits for those."""
    assert asyncio.run(_is_up_after_a_failure())


async def _looks_until_given_up(patience_s: float) -> list[int]:
    """How often a gateway looks at a failed replica before it says so, twice."""
    replicas = LocalReplicas([broken_scripted_engine()])
    engine = RayServeEngine(replicas, report_s=REPORT_S, patience_s=patience_s)
    looks = []
    for _ in range(2):
        before = replicas.num_looks
        engine.start()
        with pytest.raises(LoadError, match="no weights"):
            await engine.ready()
        assert EngineState.FAILED is engine.status().state
        await engine.stop()
        looks.append(replicas.num_looks - before)
    return looks


def test_patience_ends_and_begins_anew() -> None:
    """A model that none can load is told of in the end; who tries again waits as long again."""
    assert [1, 1] == asyncio.run(_looks_until_given_up(0.0))
    assert min(asyncio.run(_looks_until_given_up(3 * REPORT_S))) > 1
