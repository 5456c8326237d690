"""What answers before the application is there."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.responses import PlainTextResponse

from streamwell.server.front import Front


async def _get(front: Front, path: str) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:  # noqa: ANN401 - as ASGI has it
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": path, "headers": []}
    await front(scope, receive, send)
    return sent


def test_the_page_answers_and_all_else_waits() -> None:
    """Page and health are there at once; a route answers once the application is there."""

    async def test() -> None:
        front = Front()
        waiting = asyncio.create_task(_get(front, "/v1/models"))
        start, page = await _get(front, "/")
        assert (200, True) == (start["status"], page["body"].startswith(b"<!doctype html>"))
        health = {path: await _get(front, path) for path in ("/live", "/ready")}
        assert {"/live": 200, "/ready": 503} == {
            path: answer[0]["status"] for path, answer in health.items()
        }
        assert not waiting.done()

        front.open(PlainTextResponse("from the application"))
        front.close()
        assert b"from the application" == (await waiting)[1]["body"]
        assert b"from the application" == (await _get(front, "/live"))[1]["body"]

    asyncio.run(test())


def test_what_waits_is_refused_when_the_application_does_not_come() -> None:
    """With the error of a server that leaves, also for who comes later."""

    async def test() -> None:
        front = Front()
        waiting = asyncio.create_task(_get(front, "/v1/models"))
        await asyncio.sleep(0)
        front.close()

        for start, body in (await waiting, await _get(front, "/")):
            assert 503 == start["status"]
            assert (b"retry-after", b"1") in start["headers"]
            assert "shutting_down" == json.loads(body["body"])["error"]["code"]

    asyncio.run(test())
