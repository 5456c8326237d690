"""An answer's events, each once, through lost connections and restarts of the server.

A request is sent with an Idempotency-Key, so sending it again generates nothing twice. As soon as
the run is known (`x-run-id`), a broken stream is taken up by its id, after the last frame seen.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from streamwell.cli.address import DEFAULT_URL
from streamwell.cli.events import Frame, frames_of
from streamwell.cli.remote import (
    CONNECT_S,
    SILENCE_S,
    UnfitServer,
    message_of,
    parsed,
    reason_of,
    refusal,
    unfit,
)
from streamwell.core.errors import EngineDied

#: How long a server may be away before the answer is given up, and the longest pause between tries.
PATIENCE_S = 60.0
_MAX_PAUSE_S = 2.0
_FIRST_PAUSE_S = 0.1
#: What a proxy says while the server behind it is away.
_GATEWAY_STATUSES = (502, 503, 504)


class ConnectionLost(UnfitServer):
    """The answer broke off; its run may be followed later, if the server kept it."""


class _Cut(Exception):
    """The stream ended before the answer did."""


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    body: dict[str, Any] | None = None


class AnswerStream:
    """The payloads of one answer, in order; iterate once."""

    def __init__(
        self, client: httpx2.Client, path: str, body: dict[str, Any], *, resume_path: str
    ) -> None:
        """Nothing is sent before the first payload is asked for.

        Args:
            client: of the server.
            path: where the request is posted; `body` is its JSON.
            body: with `"stream": true`.
            resume_path: where its run is taken up; `{run_id}` stands for the id.
        """
        self.run_id = ""
        self._client = client
        self._start = _Request("POST", path, body)
        self._resume_path = resume_path
        self._key = uuid.uuid4().hex
        #: The server does not name its runs, so it is none of ours, and nothing can be taken up.
        self._is_foreign = False
        self._last_id = ""
        self._deadline_s = 0.0

    @classmethod
    def of_run(cls, client: httpx2.Client, run_id: str) -> AnswerStream:
        """A run that somebody else has started, from its beginning on."""
        stream = cls(client, "", {}, resume_path="/v1/runs/{run_id}/events")
        stream.run_id = run_id
        return stream

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Follow the answer to its end.

        Raises:
            InvalidRequest: the server refuses, in its own words.
            EngineDied: the run has failed.
            ConnectionLost: it broke off, and could not be taken up within `PATIENCE_S`.
            UnfitServer: it is no stream of such a server.
            httpx2.HTTPError: it broke off, and is not of a kind that can be taken up.
        """
        self._heard()
        pause_s = _FIRST_PAUSE_S
        while True:
            last_id = self._last_id
            try:
                yield from self._connection()
            except (_Cut, httpx2.TransportError) as error:
                if self._is_foreign:
                    raise
                if last_id != self._last_id:
                    pause_s = _FIRST_PAUSE_S
                self._pause(pause_s, error)
                pause_s = min(2 * pause_s, _MAX_PAUSE_S)
            else:
                return

    def _heard(self, chunk: bytes = b"") -> bytes:
        """The server is there; a comment says so too."""
        self._deadline_s = time.monotonic() + PATIENCE_S
        return chunk

    def _pause(self, pause_s: float, error: Exception) -> None:
        reason = reason_of(error)
        if pause_s == _FIRST_PAUSE_S:  # a connection may have been silent for longer than that
            self._heard()
        if time.monotonic() + pause_s > self._deadline_s:
            raise ConnectionLost(f"the answer broke off: {reason}{self._hint()}")
        if pause_s == _FIRST_PAUSE_S:
            print(f"streamwell: {reason}; trying again for {PATIENCE_S:.0f} s", file=sys.stderr)
        time.sleep(pause_s)

    def _hint(self) -> str:
        """How the answer can be taken up later, if it can."""
        if not self.run_id:
            return ""
        url = str(self._client.base_url).rstrip("/")
        address = "" if url == DEFAULT_URL else f" --url {url}"
        return f"; when the server is back, `streamwell runs follow {self.run_id}{address}` goes on"

    def _connection(self) -> Iterator[dict[str, Any]]:
        """Payloads of one connection; returns at the answer's end, raises `_Cut` before it."""
        with self._opened() as response:
            if response.status_code == 204:  # the end had been seen
                return
            self._check(response)
            self.run_id = response.headers.get("x-run-id", self.run_id)
            self._is_foreign = not self.run_id
            for frame in frames_of(map(self._heard, response.iter_bytes())):
                if frame.data == "[DONE]":
                    return
                payload = payload_of(frame, response)
                self._check_failure(frame, payload)
                self._last_id = frame.id or self._last_id
                yield payload
                if frame.name == "done":
                    return
        if self._is_foreign:
            raise ConnectionLost("the answer broke off: the stream ended before it did")
        raise _Cut("the connection was closed")

    @contextmanager
    def _opened(self) -> Iterator[httpx2.Response]:
        request = self._next_request()
        headers = {"idempotency-key": self._key} if request.body else {}
        options: dict[str, Any] = {}
        if self.run_id:  # a server of ours, which is never silent for so long
            options["timeout"] = httpx2.Timeout(CONNECT_S, read=SILENCE_S)
        if self._last_id:
            headers["last-event-id"] = self._last_id
        with self._client.stream(
            request.method, request.path, json=request.body, headers=headers, **options
        ) as response:
            yield response

    def _next_request(self) -> _Request:
        if not self.run_id:
            return self._start
        path = self._resume_path.format(run_id=self.run_id)
        start = "" if self._last_id else "starting_after=-1"
        return _Request("GET", f"{path}{'&' if '?' in path else '?'}{start}".rstrip("?&"))

    def _check(self, response: httpx2.Response) -> None:
        if response.status_code != 200:
            response.read()
            reason = message_of(parsed(response)) or f"status {response.status_code}"
            if self._is_absence(response):
                raise _Cut(reason)
            if self._last_id:  # what was accepted once is not there any more
                raise ConnectionLost(f"the answer broke off: {reason}")
            raise refusal(response)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            raise UnfitServer(unfit(response))

    def _is_absence(self, response: httpx2.Response) -> bool:
        """The server will be back: it says so, or a proxy in front of it that knew it."""
        if response.status_code == 503 and "retry-after" in response.headers:
            return True
        return bool(self.run_id) and response.status_code in _GATEWAY_STATUSES

    def _check_failure(self, frame: Frame, payload: dict[str, Any]) -> None:
        """An error without an id is not the run's end, which is in the log: the run goes on."""
        if not payload.get("error"):
            return
        message = message_of(payload) or "the server did not say why"
        if not self._is_foreign and not frame.id:
            raise _Cut(message)
        raise EngineDied(message)


def payload_of(frame: Frame, response: httpx2.Response) -> dict[str, Any]:
    """The JSON object of an event; raises `UnfitServer` if it is none."""
    try:
        payload = json.loads(frame.data)
    except ValueError:
        payload = None
    if not isinstance(payload, dict):
        raise UnfitServer(f"{unfit(response)}, with events of another kind")
    return payload
