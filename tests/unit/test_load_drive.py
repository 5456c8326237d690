"""`streamwell bench`: closed and open loops, and what answers and failures come to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest

from streamwell.cli.bench.drive import Body, Loop, closed_loop, drive, open_loop
from streamwell.cli.bench.recording import Recording

USAGE = {"prompt_tokens": 7, "completion_tokens": 3}
BODIES: list[Body] = [{"n": n} for n in range(6)]

Handler = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


def event(**fields: Any) -> str:  # noqa: ANN401 - JSON
    return f"data: {json.dumps(fields, ensure_ascii=False)}\n\n"


def delta(finish_reason: str | None = None, **fields: str) -> str:
    return event(choices=[{"delta": fields, "finish_reason": finish_reason}])


END = delta("stop") + event(choices=[], usage=USAGE) + "data: [DONE]\n\n"


def answering(status: int, text: str) -> Handler:
    async def handle(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, content=text.encode())

    return handle


def record(handler: Handler, loop: Loop, *, count: int = 1, max_time_s: float = 60.0) -> Recording:
    """What a loop against this server comes to."""
    recording = Recording(count)

    async def run() -> None:
        transport = httpx2.MockTransport(handler)
        async with httpx2.AsyncClient(transport=transport, base_url="http://server") as client:
            await drive(client, "/v1/chat/completions", loop, recording, max_time_s=max_time_s)

    asyncio.run(run())
    return recording


@pytest.mark.parametrize(
    ("texts", "num_events"),
    [
        (delta(role="assistant", content="") + delta(content="a") + delta(content="b"), 2),
        (delta(content="line\u2028separator") + ": ping\n\n" + delta(content="\x85"), 2),
        (delta(reasoning_content="hm") + delta(content="a"), 2),
        (delta(reasoning="hm") + delta(content="a"), 2),
        (event(choices=[{"text": "a", "finish_reason": None}]), 1),
        (event(choices=[{"delta": {"content": "a"}}], usage={"prompt_tokens": 1}), 1),
    ],
    ids=[
        "chat",
        "separators",
        "thoughts",
        "thoughts by another name",
        "completion",
        "usage so far",
    ],
)
def test_an_answer_is_its_events_with_text(texts: str, num_events: int) -> None:
    """And the tokens that its last usage counts."""
    (answer,) = record(answering(200, texts + END), closed_loop(BODIES[:1], 1)).answers

    assert num_events == len(answer.text_times_s)
    assert (7, 3) == (answer.prompt_tokens, answer.completion_tokens)


@pytest.mark.parametrize(
    ("status", "text", "kind", "message"),
    [
        (503, '{"error": {"message": "busy"}}', "status 503", "busy"),
        (500, "<h1>broken</h1>", "status 500", "<h1>broken</h1>"),
        (500, "", "status 500", "without a word"),
        (200, delta(content="a") + event(error={"message": "died"}), "error in the stream", "died"),
        (200, delta(content="a"), "cut stream", "before the answer did"),
        (200, END, "empty answer", "no text"),
        (200, delta("stop", content="a"), "no usage", "does not say"),
        (200, "data: {'a'}\n\n", "other events", "not that of such a server"),
        (200, "data: [1]\n\n", "other events", "not that of such a server"),
        (200, event(choices=["a"]), "other events", "not that of such a server"),
        (200, event(choices=3), "other events", "not that of such a server"),
        (200, event(usage="many"), "other events", "not that of such a server"),
        (200, "<html></html>", "cut stream", "before the answer did"),
    ],
)
def test_failures_have_a_kind_and_a_message(
    status: int, text: str, kind: str, message: str
) -> None:
    """Whatever a server answers with, the level goes on."""
    recording = record(answering(status, text), closed_loop(BODIES, 2), count=6)

    assert (6, 0, 0) == (len(recording.failures), len(recording.answers), recording.num_unfinished)
    assert {kind} == {failure.kind for failure in recording.failures}
    assert message in str(recording.failures[0])


def test_a_lost_connection_is_a_failure() -> None:
    """Of the kind that the client library calls it."""

    async def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    (failure,) = record(refuse, closed_loop(BODIES[:1], 1)).failures

    assert ("ConnectError", "refused") == (failure.kind, str(failure))


class Crowd:
    """Answers as soon as there are enough requests at once, and counts them."""

    def __init__(self, size: int) -> None:
        self.most = self.now = self.total = 0
        self._size = size
        self._is_full = asyncio.Event()

    async def handle(self, _request: httpx2.Request) -> httpx2.Response:
        self.now += 1
        self.total += 1
        self.most = max(self.most, self.now)
        if self.now == self._size:
            self._is_full.set()
        await self._is_full.wait()
        await asyncio.sleep(0)  # let the others come
        self.now -= 1
        return httpx2.Response(200, content=(delta(content="a") + END).encode())


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_closed_loop_keeps_its_clients_busy(concurrency: int) -> None:
    """As many at once as there are clients, never more, until all are answered."""
    crowd = Crowd(concurrency)
    recording = record(crowd.handle, closed_loop(BODIES, concurrency), count=6)

    assert (concurrency, 6) == (crowd.most, crowd.total)
    assert 6 == len(recording.answers)


def test_more_clients_than_requests() -> None:
    """Each request is sent once."""
    assert 6 == len(record(Crowd(6).handle, closed_loop(BODIES, 50), count=6).answers)


def test_an_open_loop_waits_for_nobody() -> None:
    """The last request is sent although none before it was answered."""
    crowd = Crowd(6)
    recording = record(crowd.handle, open_loop(BODIES, [0.001 * n for n in range(6)]), count=6)

    assert 6 == crowd.most
    assert 6 == len(recording.answers)


def test_the_time_limit_ends_a_level() -> None:
    """What was answered stays, and what was not is neither an answer nor a failure."""

    async def first_only(request: httpx2.Request) -> httpx2.Response:
        if json.loads(request.content)["n"]:
            await asyncio.Event().wait()
        return httpx2.Response(200, content=(delta(content="a") + END).encode())

    recording = record(first_only, closed_loop(BODIES, 2), count=6, max_time_s=2.0)

    assert (1, 0, 5) == (
        len(recording.answers),
        len(recording.failures),
        recording.num_unfinished,
    )
    assert 2.0 <= recording.duration_s
