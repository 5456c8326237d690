"""A replica among others, of which Ray chooses the one with the shortest queue."""

from __future__ import annotations

import asyncio

from engines import a_request, broken_scripted_engine, scripted_engine

from streamwell.backends.ray_serve.messages import Ask, encode
from streamwell.backends.ray_serve.replica import Replica
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
