"""Clients leave whenever they like; within a step or two nothing is generated for them."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from collections import defaultdict
from contextlib import closing
from typing import Any

import pytest
from harness import DEADLINE_S, HOST, ServerProcess, eventually, stays

from streamwell.models import brooklet_path

pytestmark = pytest.mark.slow

NUM_CLIENTS = 100
_END_ID = json.loads((brooklet_path() / "generation_config.json").read_text())["eos_token_id"]
#: Far more than anybody stays for; without the end token, which has no text, nothing is silent.
ENDLESS = {"max_tokens": 1500, "logit_bias": {str(_END_ID): -100}}


class Clock:
    """Counts what a stream that nobody hinders has sent: time, measured in steps."""

    def __init__(self) -> None:
        self._now = 0
        self._events: dict[int, asyncio.Event] = defaultdict(asyncio.Event)

    def tick(self) -> None:
        self._now += 1
        self._events[self._now].set()

    async def reach(self, tick: int) -> None:
        if self._now < tick:
            await self._events[tick].wait()


class Client:
    """One connection with one request in it."""

    def __init__(self, port: int, body: dict[str, Any]) -> None:
        self._port = port
        self._body = json.dumps(body).encode()

    async def __aenter__(self) -> Client:
        self._reader, self._writer = await asyncio.open_connection(HOST, self._port)
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(self._body)}\r\n\r\n"
        self._writer.write(head.encode() + self._body)
        await self._writer.drain()
        return self

    async def read_frames(self, count: int) -> None:
        for _ in range(count):
            await self._reader.readuntil(b"\ndata: {")

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def _body(draw: random.Random, stream: bool) -> dict[str, Any]:
    """A prompt of one to many hundred tokens: the long ones take several steps of prefill."""
    content = "The mill stands by the river. " * draw.choice([1, 1, 1, 20, 60])
    message = {"role": "user", "content": content}
    return {"messages": [message], "stream": stream, "seed": draw.randrange(1000)} | ENDLESS


async def _come_and_leave(server: ServerProcess, clock: Clock, draw: random.Random) -> None:
    """Arrive at some time; leave at once, at some time, or as soon as something was sent."""
    stream = draw.random() < 0.6
    arrival, stay = draw.randrange(40), draw.randrange(60)
    num_frames = draw.choice([1, 2, 3, 10, 20])
    moment = draw.choice(["at once", "later", "later", "after frames" if stream else "later"])
    await clock.reach(arrival)
    async with Client(server.port, _body(draw, stream)) as client:
        if moment == "later":
            await clock.reach(arrival + stay)
        elif moment == "after frames":
            await client.read_frames(num_frames)


async def _storm(server: ServerProcess, seed: int) -> None:
    clock = Clock()
    draws = random.Random(seed)

    async def tell_time(client: Client) -> None:
        while True:
            await client.read_frames(1)
            clock.tick()

    async with Client(server.port, _body(random.Random(0), stream=True)) as first:
        telling = asyncio.create_task(tell_time(first))
        clients = [random.Random(draws.random()) for _ in range(NUM_CLIENTS)]
        async with asyncio.timeout(2 * DEADLINE_S):
            await asyncio.gather(
                asyncio.to_thread(eventually, lambda: _is_crowded(server), "some are queued"),
                *(_come_and_leave(server, clock, draw) for draw in clients),
            )
        assert not telling.done()
        telling.cancel()
        await asyncio.wait([telling])


def _is_crowded(server: ServerProcess) -> bool:
    metrics = server.metrics()
    return metrics["requests_waiting"] > 0


def _num_unended(server: ServerProcess) -> int:
    uri = f"file:{server.database_path}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as database:
        (count,) = database.execute("SELECT count(*) FROM runs WHERE NOT ended").fetchone()
    return int(count)


def test_nothing_is_generated_for_clients_that_left(small: ServerProcess) -> None:
    """100 clients leave while queued, in prefill or in decode; then the engine stands still."""
    asyncio.run(_storm(small, seed=20))

    eventually(small.is_idle, "no sequence and no block is left")
    num_steps = small.metrics()["engine_steps_total"]
    assert stays(lambda: num_steps == small.metrics()["engine_steps_total"], for_s=1.5)
    eventually(lambda: _num_unended(small) == 0, "every run has its last word")
    assert small.text({"prompt": "Once", "max_tokens": 3})
    assert "Traceback" not in small.log()


def test_one_that_leaves_costs_no_more_than_what_was_under_way(small: ServerProcess) -> None:
    """When the only client leaves, the engine stops at once, not at the end of the answer."""
    eventually(small.is_idle, "others are done")
    disconnects_before = small.metrics()["client_disconnects_total"]
    with small.stream(ENDLESS | {"prompt": "Once upon a time", "max_tokens": 3900}) as stream:
        for _ in range(5):
            next(stream)
        steps_before = small.metrics()["engine_steps_total"]
    eventually(small.is_idle, "the client has left")
    metrics = small.metrics()

    assert 1 == metrics["client_disconnects_total"] - disconnects_before
    # two steps, and what the engine did while this test asked for metrics and hung up
    assert metrics["engine_steps_total"] - steps_before < 3500
