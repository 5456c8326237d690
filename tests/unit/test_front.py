"""What answers before the application is there."""

from __future__ import annotations

import asyncio
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
    """The page is there at once; a route's answer is that of the application, once it is there."""

    async def test() -> None:
        front = Front()
        waiting = asyncio.create_task(_get(front, "/ready"))
        start, page = await _get(front, "/")
        assert (200, True) == (start["status"], page["body"].startswith(b"<!doctype html>"))
        assert not waiting.done()

        front.open(PlainTextResponse("from the application"))
        assert b"from the application" == (await waiting)[1]["body"]
        assert b"from the application" == (await _get(front, "/"))[1]["body"]

    asyncio.run(test())
