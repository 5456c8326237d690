"""A small load generator: streaming chat requests from a fixed number of clients.

Each client sends its next request when the last one has ended (a closed loop). Tokens are counted
by the server's own `usage`; times are those at which the client read them.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import orjson


@dataclass(frozen=True, slots=True)
class Answer:
    """One answered request; times in seconds since it was sent."""

    #: When each event with text in it was read.
    text_times_s: tuple[float, ...]
    prompt_tokens: int
    completion_tokens: int

    @property
    def ttft_s(self) -> float:
        return self.text_times_s[0]

    @property
    def gaps_s(self) -> list[float]:
        return [b - a for a, b in itertools.pairwise(self.text_times_s)]


class EventParser:
    """Server-sent events out of bytes, of which only the data is kept."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that this chunk completes."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = []
        for line in lines:
            field, _, value = line.rstrip(b"\r").partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            elif not field and not value and self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
        return events


async def read_events(response: httpx2.Response) -> AsyncIterator[tuple[float, dict[str, Any]]]:
    """The JSON of each event, and when it was read."""
    parser = EventParser()
    async for chunk in response.aiter_raw():
        now = time.perf_counter()
        for data in parser.feed(chunk):
            if data != b"[DONE]":
                yield now, orjson.loads(data)


async def ask(client: httpx2.AsyncClient, body: dict[str, Any]) -> Answer:
    """Send one chat request and read its stream to the end.

    Raises:
        RuntimeError: the server refused it, or the stream brought an error or nothing.
    """
    start = time.perf_counter()
    times: list[float] = []
    usage: dict[str, int] = {}
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            raise RuntimeError(f"{response.status_code}: {(await response.aread())[:500]!r}")
        async for now, event in read_events(response):
            if "error" in event:
                raise RuntimeError(str(event["error"]))
            usage = event.get("usage") or usage
            if any(choice["delta"].get("content") for choice in event["choices"]):
                times.append(now - start)
    if not times or not usage:
        raise RuntimeError("a stream without text or usage")
    return Answer(tuple(times), usage["prompt_tokens"], usage["completion_tokens"])


async def drive(
    base_url: str, bodies: Sequence[dict[str, Any]], concurrency: int, *, timeout_s: float
) -> tuple[list[Answer], float]:
    """Send all bodies from `concurrency` clients; returns the answers and the seconds it took.

    Raises:
        RuntimeError: a request failed.
        TimeoutError: it took longer than `timeout_s`.
    """
    todo = iter(bodies)

    async def work(client: httpx2.AsyncClient) -> list[Answer]:
        return [await ask(client, body) for body in todo]

    # llama-server closes idle connections without a word: each request gets one of its own
    limits = httpx2.Limits(max_connections=concurrency, max_keepalive_connections=0)
    async with httpx2.AsyncClient(
        base_url=base_url, timeout=timeout_s, limits=limits, trust_env=False
    ) as client:
        start = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as clients:
                tasks = [clients.create_task(work(client)) for _ in range(concurrency)]
        except ExceptionGroup as group:
            raise RuntimeError(f"a request failed: {group.exceptions[0]}") from group
        wall_s = time.perf_counter() - start
    return [answer for task in tasks for answer in task.result()], wall_s
