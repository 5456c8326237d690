"""How a run is started and taken up again on each route, and what its events say."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlencode

#: By `Last-Event-ID`, or by `?starting_after=`.
By = Literal["header", "query"]

_ID = re.compile(rb"^id: (\S+):([0-9]+)(?:\.([0-9]+))?$", re.MULTILINE)
_DATA = re.compile(rb"^data: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Ask:
    """A request."""

    method: str
    path: str
    body: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        payload = b"" if self.body is None else json.dumps(self.body).encode()
        head = [f"{self.method} {self.path} HTTP/1.1", "Host: localhost", "Connection: close"]
        head += [f"{name}: {value}" for name, value in self.headers.items()]
        if payload:
            head += ["Content-Type: application/json", f"Content-Length: {len(payload)}"]
        return "\r\n".join([*head, "", ""]).encode() + payload


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event, as its bytes."""

    raw: bytes

    @property
    def id(self) -> str:
        match = _ID.search(self.raw)
        return match[0].decode() if match else ""

    @property
    def run_id(self) -> str:
        match = _ID.search(self.raw)
        assert match, self.raw
        return match[1].decode()

    @property
    def place(self) -> tuple[int, int | None]:
        """Number of the event in the log, and which part of it this is, if it is not the last."""
        match = _ID.search(self.raw)
        assert match, self.raw
        return int(match[2]), None if match[3] is None else int(match[3])

    @property
    def data(self) -> str:
        match = _DATA.search(self.raw)
        return match[1].decode() if match else ""

    @property
    def json(self) -> dict[str, Any]:
        is_object = self.data.startswith("{")
        value: dict[str, Any] = json.loads(self.data) if is_object else {}
        return value

    @property
    def is_empty(self) -> bool:
        """A comment or a `retry:` that has no place in the log."""
        return not self.id and not self.data

    @property
    def error(self) -> bool:
        return "error" in self.json


def num_breaks(events: list[Event]) -> int:
    """How often an event is not the one that follows the event before it."""
    num = 0
    now: tuple[int, int | None] = (-1, None)
    for event in events:
        (seq, part), now = now, event.place
        if part is None:
            num += now not in ((seq + 1, None), (seq + 1, 0))
        else:
            num += now not in ((seq, None), (seq, part + 1))
    return num


class Route:
    """One run on one route; whoever has seen an event asks for those after it."""

    name = ""

    def ask(self, last: Event | None) -> Ask:
        raise NotImplementedError

    def text_of(self, event: Event) -> str:
        raise NotImplementedError

    def is_end(self, event: Event) -> bool:
        raise NotImplementedError

    def is_known(self, event: Event, events: list[Event]) -> bool:
        """The client has it already, and could not have asked for less."""
        return False

    def again(self, run_id: str) -> Ask:
        """The whole stream, once more."""
        raise NotImplementedError


class Completions(Route):
    """`/v1/chat/completions` and `/v1/completions`; an idempotency key, if any, names the run."""

    def __init__(self, path: str, body: dict[str, Any], key: str, by: By = "header") -> None:
        self.name = f"{path} by {by}"
        self._path = path
        headers = {"Idempotency-Key": key} if key else {}
        self._start = Ask("POST", path, body | {"stream": True}, headers)
        self._by = by

    def ask(self, last: Event | None) -> Ask:
        if last is None:
            return self._start
        again = f"{self._path}/{last.run_id}?stream=true"
        if self._by == "header":
            return Ask("GET", again, headers={"Last-Event-ID": last.id.removeprefix("id: ")})
        seq, part = last.place
        return Ask("GET", f"{again}&starting_after={seq if part is None else seq - 1}")

    def text_of(self, event: Event) -> str:
        choice = (event.json.get("choices") or [{}])[0]
        return choice.get("text") or choice.get("delta", {}).get("content") or ""

    def is_end(self, event: Event) -> bool:
        return event.data == "[DONE]"

    def is_known(self, event: Event, events: list[Event]) -> bool:
        """A number names a whole event, so its parts come again."""
        is_part = bool(events) and events[-1].place[1] is not None
        return self._by == "query" and is_part and event.id in {e.id for e in events[-9:]}

    def again(self, run_id: str) -> Ask:
        return Ask("GET", f"{self._path}/{run_id}?stream=true&starting_after=-1")


class TextStream(Route):
    """`/v1/stream`, as a browser's `EventSource` uses it, or `/v1/runs/{id}/events`."""

    def __init__(self, body: dict[str, Any], by: By = "header") -> None:
        self.name = f"/v1/stream by {by}"
        query = {k: str(v).lower() if isinstance(v, bool) else v for k, v in body.items()}
        self._path = f"/v1/stream?{urlencode(query)}"
        self._by = by

    def ask(self, last: Event | None) -> Ask:
        headers = {"Accept": "text/event-stream"}
        if last is not None and self._by == "query":
            return Ask("GET", f"/v1/runs/{last.run_id}/events?starting_after={last.place[0]}")
        if last is not None:
            headers["Last-Event-ID"] = last.id.removeprefix("id: ")
        return Ask("GET", self._path, headers=headers)

    def text_of(self, event: Event) -> str:
        return event.json.get("text") or ""

    def is_end(self, event: Event) -> bool:
        return b"event: done\n" in event.raw

    def again(self, run_id: str) -> Ask:
        return Ask("GET", f"/v1/runs/{run_id}/events?starting_after=-1")
