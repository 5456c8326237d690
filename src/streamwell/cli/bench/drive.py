"""Requests in a closed or an open loop, and what became of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

import httpx2

from streamwell.cli.bench.client import ask
from streamwell.cli.bench.recording import Recording, RequestFailed

Body = Mapping[str, Any]
Send = Callable[[Body], Coroutine[None, None, None]]
#: Sends all that it has to send, and returns when the last of it has ended.
Loop = Callable[[Send], Awaitable[None]]


def closed_loop(bodies: Iterable[Body], concurrency: int) -> Loop:
    """Each client sends its next request when its last one has ended."""

    async def run(send: Send) -> None:
        waiting = iter(bodies)

        async def work() -> None:
            for body in waiting:
                await send(body)

        async with asyncio.TaskGroup() as clients:
            for _ in range(concurrency):
                clients.create_task(work())

    return run


def open_loop(bodies: Iterable[Body], arrivals_s: Iterable[float]) -> Loop:
    """Each request is sent at its time, whatever became of the others."""

    async def run(send: Send) -> None:
        start_s = time.perf_counter()
        async with asyncio.TaskGroup() as requests:
            for body, arrival_s in zip(bodies, arrivals_s, strict=True):
                await asyncio.sleep(start_s + arrival_s - time.perf_counter())
                requests.create_task(send(body))

    return run


async def drive(
    client: httpx2.AsyncClient,
    path: str,
    loop: Loop,
    recording: Recording,
    *,
    max_time_s: float,
    on_end: Callable[[], None] = lambda: None,
) -> None:
    """Run a loop to its end, or until the time is over or this is cancelled.

    Args:
        client: of the server.
        path: of chat or text completions.
        loop: what sends the requests.
        recording: an empty one, which is true at any time.
        max_time_s: then what is under way is left alone.
        on_end: called after each request.
    """

    async def send(body: Body) -> None:
        try:
            recording.answers.append(await ask(client, path, body))
        except RequestFailed as failure:
            recording.failures.append(failure)
        on_end()

    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    try:
        async with asyncio.timeout(max_time_s):
            await loop(send)
    except TimeoutError:
        pass
    finally:
        recording.duration_s = time.perf_counter() - start_s
        recording.cpu_s = time.process_time() - start_cpu_s
