"""`/v1/runs/{id}/events`: what it ends with, wherever it is taken up."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from rig import Answer, Rig, read, request, run

from streamwell.core.types import EventKind
from streamwell.server.app import create_app

pytestmark = pytest.mark.timeout(30)


async def _get(rig: Rig, path: str, query: str = "") -> Answer:
    answer = Answer()
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode()}
    scope |= {"headers": [], "http_version": "1.1", "scheme": "http", "root_path": ""}
    pending = [{"type": "http.request", "body": b""}]

    async def receive() -> dict[str, Any]:
        return pending.pop() if pending else await _never()

    await create_app(rig.services, max_body_bytes=1000)(scope, receive, answer.send)
    return answer


async def _never() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("num_choices", [1, 2])
def test_the_end_has_its_reasons_wherever_the_stream_is_taken_up(num_choices: int) -> None:
    """After any event but the last, `done` is the same: also after the one with the reason."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(3 * num_choices)
        reader = await rig.runs.start(request(n=num_choices, max_tokens=3))
        events = await read(reader)
        reader.close()
        path = f"/v1/runs/{reader.spec.run_id}/events"
        expected = {"finish_reason": "length"}
        if num_choices > 1:
            expected = {"finish_reasons": ["length"] * num_choices}

        assert EventKind.FINISH is events[-2].kind
        for event in events[:-1]:
            answer = await _get(rig, path, f"starting_after={event.seq}")
            end = b"".join(answer.bodies).rpartition(b"event: done\ndata: ")[2]
            assert expected.items() <= json.loads(end).items()

    run(test)
