"""Requests of any kind to the application of a rig, and the frames of its streams."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from rig import Answer, Rig


async def call(
    rig: Rig,
    method: str,
    path: str,
    body: Any = None,  # noqa: ANN401 - whatever JSON can say, or bytes
    *,
    query: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    leave: asyncio.Event | None = None,
    answer: Answer | None = None,
) -> Answer:
    """Send one request; the client leaves at `leave`, or after the answer.

    `answer` can be looked at while it comes.
    """
    answer = answer or Answer()
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    pending = [{"type": "http.request", "body": raw}]
    sent = {"content-type": "application/json"} | dict(headers or {})
    scope = {"type": "http", "method": method, "path": path, "http_version": "1.1"}
    query_string = urlencode(query or {}, doseq=True).encode()
    scope |= {"scheme": "http", "root_path": "", "query_string": query_string}
    scope |= {"headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()]}

    async def receive() -> dict[str, Any]:
        if pending:
            return pending.pop()
        await (leave or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    await rig.app(scope, receive, answer.send)
    return answer


async def ok(rig: Rig, method: str, path: str, body: Any = None, **options: Any) -> dict[str, Any]:  # noqa: ANN401
    """The JSON of an answer that must be 200."""
    answer = await call(rig, method, path, body, **options)
    assert 200 == answer.status, answer.bodies
    return answer.json


async def error(rig: Rig, method: str, path: str, body: Any = None, **options: Any) -> Any:  # noqa: ANN401
    """Status, param and code of an answer that must be an error."""
    answer = await call(rig, method, path, body, **options)
    assert answer.status >= 400, answer.bodies
    return answer.status, answer.json["error"]["param"], answer.json["error"]["code"]


@dataclass(frozen=True, slots=True)
class Event:
    """One frame of a stream that names its events."""

    id: str | None
    name: str
    data: str

    @property
    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.data)
        return value


def events_of(answer: Answer) -> list[Event]:
    """The frames of a stream that has ended; every one has a name and an id, or is an error."""
    text = b"".join(answer.bodies).decode()
    assert text == "" or text.endswith("\n\n")
    events = []
    for block in text.split("\n\n")[:-1]:
        match = re.fullmatch(r"(?:id: (\S+)\n)?event: (\S+)\ndata: (.*)", block)
        assert match, block
        events.append(Event(*match.groups()))
    return events
