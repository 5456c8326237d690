"""`/v1/ws`: messages are answered in the order in which they come, whatever takes how long."""

from __future__ import annotations

import pytest
from rig import Rig, run, turns
from socket_rig import connected

from streamwell.core.types import RunEvent

pytestmark = pytest.mark.timeout(30)

PROMPT = {"type": "prompt", "prompt": "ab", "raw": True, "seed": 1}


async def _ended_run(rig: Rig) -> str:
    """A run that the store alone knows."""
    rig.engine.allow(2)
    async with connected(rig) as client:
        client.say(**PROMPT, max_tokens=2)
        run_id: str = (await client.until_frames(1, "done"))[0]["run"]
    return run_id


def _slow_down(rig: Rig) -> None:
    """Whoever reads the events of a run from the store has to wait for them."""
    read = rig.store.events

    async def events(run_id: str, after_seq: int = -1) -> list[RunEvent]:
        await turns()
        return await read(run_id, after_seq)

    rig.store.events = events  # type: ignore[method-assign]


def test_a_run_from_memory_waits_for_one_from_the_store() -> None:
    """What is at hand does not get ahead of what has to be fetched."""

    async def test(rig: Rig) -> None:
        ended = await _ended_run(rig)
        async with connected(rig) as other, connected(rig) as client:
            other.say(**PROMPT, max_tokens=9)
            live = (await other.until_frames(1, "started"))[0]["run"]
            _slow_down(rig)
            client.say(type="resume", run=ended, seq=-1, id="first")
            client.say(type="resume", run=live, seq=-1, id="second")
            started = await client.until_frames(2, "started")
            rig.engine.allow(9)
            await client.until_frames(2, "done")

        assert ["first", "second"] == [frame["id"] for frame in started]
        assert [ended] * 4 == [frame["run"] for frame in client.frames[:4]]

    run(test)


def test_an_error_waits_for_the_answer_before_it() -> None:
    """Also when there is nothing to do to find it."""

    async def test(rig: Rig) -> None:
        ended = await _ended_run(rig)
        async with connected(rig) as client:
            _slow_down(rig)
            client.say(type="resume", run=ended, seq=-1)
            client.say(type="sing")
            await client.until_frames(1, "error")

        types = [frame["type"] for frame in client.frames]
        assert ["started", "delta", "delta", "done", "error"] == types

    run(test)


def test_an_error_waits_until_a_prompt_has_begun() -> None:
    """`started` comes when the run is in the store."""

    async def test(rig: Rig) -> None:
        async with connected(rig) as client:
            client.say(**PROMPT, max_tokens=1)
            client.say(type="sing")
            await client.until_frames(1, "error")
            rig.engine.allow(1)
            await client.until_frames(1, "done")

        assert ["started", "error"] == [frame["type"] for frame in client.frames[:2]]

    run(test)


def test_a_run_without_news_holds_up_nobody() -> None:
    """Resumed where it stands, it has no answer to give before it goes on."""

    async def test(rig: Rig) -> None:
        async with connected(rig) as other, connected(rig) as client:
            other.say(**PROMPT, max_tokens=2)
            started = (await other.until_frames(1, "started"))[0]
            client.say(type="resume", run=started["run"], seq=started["seq"])
            client.say(type="cancel", run=started["run"])
            done = (await client.until_frames(1, "done"))[0]

        assert "cancelled" == done["finish_reason"]

    run(test)


WRONG = [
    {"type": "resume", "run": "run_none", "seq": -1},
    {"type": "resume", "run": "run_none", "seq": "1"},
    {"type": "cancel", "run": "run_none"},
]


@pytest.mark.parametrize("message", WRONG)
def test_an_error_names_the_run_that_cannot_be_followed(message: dict[str, object]) -> None:
    """And the message, if it has an id: a client with many runs knows which one it was."""

    async def test(rig: Rig) -> None:
        ended = await _ended_run(rig)
        async with connected(rig) as client:
            client.say(**message, id="a")
            client.say(type="resume", run=ended, seq=99)
            first, second = await client.until_frames(2, "error")

        assert ("run_none", "a") == (first["run"], first["id"])
        assert (ended, "seq") == (second["run"], second["error"]["param"])

    run(test)
