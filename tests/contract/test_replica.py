"""A replica among others, of which Ray chooses the one with the shortest queue."""

from __future__ import annotations

import asyncio

import pytest
from engines import a_request, broken_scripted_engine, eventually, scripted_engine
from local_replicas import REPORT_S, LocalReplicas

from streamwell.backends.ray_serve.engine import RayServeEngine
from streamwell.backends.ray_serve.messages import Ask, encode
from streamwell.backends.ray_serve.replica import Replica
from streamwell.core.engine_state import EngineState
from streamwell.core.errors import LoadError
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
