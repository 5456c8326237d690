"""A replica among others, of which Ray chooses the one with the shortest queue."""

from __future__ import annotations

import asyncio

from engines import a_request, broken_scripted_engine, eventually, scripted_engine
from local_replicas import REPORT_S, LocalReplicas

from streamwell.backends.ray_serve.engine import RayServeEngine
from streamwell.backends.ray_serve.messages import Ask, encode
from streamwell.backends.ray_serve.replica import Replica
from streamwell.core.engine_state import EngineState
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
    await eventually(lambda: engine.status().state is EngineState.FAILED)
    other = Replica(scripted_engine())
    await other.start()
    replicas.replicas[:] = [other]
    info = await loading
    await engine.stop()
    return info.max_model_len > 0


def test_replicas_that_have_failed_are_no_end() -> None:
    """Ray puts others in their place: a gateway that starts meanwhile waits for those."""
    assert asyncio.run(_is_up_after_a_failure())
