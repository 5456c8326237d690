"""One streamed request, and when its text came."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import orjson

from streamwell.cli.bench.recording import Answer, RequestFailed
from streamwell.cli.events import EventParser
from streamwell.cli.remote import message_of, reason_of

#: A server may say a page about what is wrong.
_MAX_MESSAGE_CHARS = 300


async def ask(client: httpx2.AsyncClient, path: str, body: Mapping[str, Any]) -> Answer:
    """Send one request, and read its stream to the end.

    Args:
        client: of the server.
        path: of chat or text completions; `body` is the JSON, without what asks for a stream.
        body: with the prompt.

    Raises:
        RequestFailed: the server refused it, or there is no whole answer with text and usage.
    """
    streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
    start_s = time.perf_counter()
    try:
        async with client.stream("POST", path, json=streamed) as response:
            if response.status_code != 200:
                raise _refusal(response.status_code, await response.aread())
            return await _read(response, start_s)
    except (httpx2.HTTPError, OSError) as error:
        raise RequestFailed(type(error).__name__, reason_of(error)) from None


def _refusal(status: int, content: bytes) -> RequestFailed:
    try:
        message = message_of(orjson.loads(content))
    except orjson.JSONDecodeError:
        message = ""
    said = message or " ".join(content.decode("utf-8", "replace").split()) or "without a word"
    return RequestFailed(f"status {status}", said[:_MAX_MESSAGE_CHARS])


async def _read(response: httpx2.Response, start_s: float) -> Answer:
    times_s: list[float] = []
    usage: dict[str, Any] = {}
    is_whole = False
    try:
        async for now_s, event in _events(response):
            if event.get("error"):
                raise RequestFailed("error in the stream", message_of(event) or "without a word")
            usage = event.get("usage") or usage
            choices = event.get("choices") or ()
            if any(map(_has_text, choices)):
                times_s.append(now_s - start_s)
            is_whole |= any(choice.get("finish_reason") for choice in choices)
        counts = [int(usage.get(name, 0)) for name in ("prompt_tokens", "completion_tokens")]
    except (AttributeError, TypeError, ValueError):
        raise RequestFailed("other events", "the stream is not that of such a server") from None
    if not is_whole:
        raise RequestFailed("cut stream", "the stream ended before the answer did")
    if not times_s:
        raise RequestFailed("empty answer", "the answer has no text")
    if not all(counts):
        raise RequestFailed("no usage", "the server does not say how many tokens it was")
    return Answer(tuple(times_s), *counts)


def _has_text(choice: Mapping[str, Any]) -> bool:
    part = choice.get("delta") or choice
    # thoughts are called `reasoning` by some
    return any(map(part.get, ("content", "reasoning_content", "reasoning", "text")))


async def _events(response: httpx2.Response) -> AsyncIterator[tuple[float, dict[str, Any]]]:
    """The JSON of each event, and when it was read; raises `ValueError` for what is none."""
    parser = EventParser()
    async for chunk in response.aiter_bytes():
        now_s = time.perf_counter()
        for frame in parser.push(chunk):
            if frame.data != "[DONE]":
                yield now_s, orjson.loads(frame.data)
