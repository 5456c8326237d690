"""A WebSocket client of the application in the same event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rig import Rig, until

#: Frames after which nothing more comes of a run.
ENDS = ("done", "error", "suspended")


class Client:
    """What a server did with one connection, and what the client may do."""

    def __init__(self) -> None:
        #: HTTP status of the handshake; 101 when it was accepted.
        self.status = 0
        self.close_code: int | None = None
        self.texts: list[str] = []
        self.denial = b""
        #: Clear: the client does not read, so that the server cannot send.
        self.reads = asyncio.Event()
        self.reads.set()
        self._incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def say(self, **message: object) -> None:
        self.say_text(json.dumps(message))

    def say_text(self, text: str) -> None:
        self._incoming.put_nowait({"type": "websocket.receive", "text": text})

    def say_bytes(self, data: bytes) -> None:
        self._incoming.put_nowait({"type": "websocket.receive", "bytes": data})

    def leave(self) -> None:
        self._incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})

    @property
    def frames(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.texts]

    def of(self, run_id: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame.get("run") == run_id]

    async def until_frames(self, num: int, kind: str) -> list[dict[str, Any]]:
        """Wait for so many frames of this type, and return these."""
        await until(lambda: len([f for f in self.frames if f["type"] == kind]) >= num)
        return [frame for frame in self.frames if frame["type"] == kind]

    async def until_closed(self) -> int:
        await until(lambda: self.close_code is not None)
        return self.close_code or 0

    async def receive(self) -> dict[str, Any]:
        return await self._incoming.get()

    async def send(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "websocket.accept":
                self.status = 101
            case "websocket.http.response.start":
                self.status = message["status"]
            case "websocket.http.response.body":
                self.denial += message["body"]
            case "websocket.send":
                await self.reads.wait()
                self.texts.append(message["text"])
            case "websocket.close":
                self.close_code = message["code"]
                self.leave()


@asynccontextmanager
async def connected(
    rig: Rig, *, path: str = "/v1/ws", query: str = "", **headers: str
) -> AsyncIterator[Client]:
    """A client that has shaken hands, or was refused; it leaves in the end."""
    client = Client()
    raw = {"host": "here:8000", **{name.replace("_", "-"): v for name, v in headers.items()}}
    scope = {"type": "websocket", "path": path, "query_string": query.encode()}
    scope |= {"headers": [(name.encode(), value.encode()) for name, value in raw.items()]}
    scope |= {"subprotocols": [], "scheme": "ws", "root_path": "", "http_version": "1.1"}
    scope |= {"extensions": {"websocket.http.response": {}}}
    client._incoming.put_nowait({"type": "websocket.connect"})
    serving = asyncio.create_task(rig.app(scope, client.receive, client.send))
    try:
        await until(lambda: bool(client.status))
        yield client
    finally:
        client.leave()
        client.reads.set()
        await serving


def text_of(frames: list[dict[str, Any]], index: int = 0) -> str:
    return "".join(f["text"] for f in frames if f["type"] == "delta" and f["index"] == index)
