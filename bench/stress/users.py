"""The users: each sends a request, reads its answer to the end, looks at it, and thinks a while.

Locust reads this file in an environment of its own, so nothing of the project is imported here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

from locust import HttpUser, between, task
from locust.clients import ResponseContextManager
from requests import RequestException

MODELS = {"chat": "brooklet", "t5": "brooklet-t5"}
#: Seconds: no answer takes as long, and a server that hangs is a failure.
TIMEOUT_S = 120


class User(HttpUser):
    """Reads answers of one route as they come."""

    abstract = True
    wait_time = between(0.5, 2.0)
    name = ""
    path = ""
    method = "POST"
    #: Where the fields are: `json` or `params`.
    sent_as = "json"

    def fields(self) -> dict[str, Any]:
        """The request's body, or its query."""
        raise NotImplementedError

    def pieces(self, response: ResponseContextManager) -> Iterator[str]:
        """What has come, as soon as it has."""
        raise NotImplementedError

    def fault(self, pieces: list[str]) -> str:
        """What is wrong with a whole answer; empty if nothing is."""
        raise NotImplementedError

    @task
    def ask(self) -> None:
        started_s = time.perf_counter()
        with self.client.request(
            self.method,
            self.path,
            name=self.name,
            stream=True,
            catch_response=True,
            timeout=TIMEOUT_S,
            **{self.sent_as: self.fields()},
        ) as response:
            if response.status_code != 200:
                response.failure(f"status {response.status_code}: {response.text[:200]}")
                return
            pieces: list[str] = []
            try:
                for piece in self.pieces(response):
                    if not pieces:
                        self._tell_first(started_s)
                    pieces.append(piece)
                fault = self.fault(pieces)
            except RequestException as error:
                fault = f"the answer is cut: {error}"
            # for locust an answer is over when it begins
            response.request_meta["response_time"] = 1000 * (time.perf_counter() - started_s)
            if fault:
                response.failure(fault)

    def _tell_first(self, started_s: float) -> None:
        """What comes first is an entry of its own beside the whole answer."""
        self.environment.events.request.fire(
            request_type="first",
            name=f"{self.name}: first line",
            response_time=1000 * (time.perf_counter() - started_s),
            response_length=0,
            exception=None,
            context={},
        )


class EventReader(User):
    """Reads events; the end of the stream must be there, and text before it."""

    abstract = True

    def pieces(self, response: ResponseContextManager) -> Iterator[str]:
        # without a size a line is there as soon as it has come
        yield from response.iter_lines(chunk_size=None, decode_unicode=True)

    def fault(self, pieces: list[str]) -> str:
        if '"error"' in "".join(pieces[-6:]):
            return f"an error in the stream: {pieces[-6:]}"
        if not any(line == "data: [DONE]" for line in pieces[-4:]):
            return f"the stream has no end: {pieces[-3:]}"
        if not any(line.startswith("data: {") for line in pieces):
            return "the stream has no text"
        return ""


class TextReader(User):
    """Reads plain text, which has no end but that of its connection."""

    abstract = True

    def pieces(self, response: ResponseContextManager) -> Iterator[str]:
        yield from response.iter_content(chunk_size=None, decode_unicode=True)

    def fault(self, pieces: list[str]) -> str:
        return "" if "".join(pieces) else "there is no text"


class Chat(EventReader):
    """A conversation with the decoder, without `/v1` as in transformers-openai-api."""

    name, path = "chat", "/chat/completions"

    def fields(self) -> dict[str, Any]:
        prompt = random.choice(["Hello!", "Count to 20.", "What is 3 + 4?", "Tell me a story."])
        messages = [{"role": "user", "content": prompt}]
        return {"model": MODELS["chat"], "messages": messages, "max_tokens": 128, "stream": True}


class T5(EventReader):
    """The encoder-decoder, at the same time."""

    name, path = "t5", "/chat/completions"

    def fields(self) -> dict[str, Any]:
        content = f"Write {random.randrange(10000)} in words"
        messages = [{"role": "user", "content": content}]
        return {"model": MODELS["t5"], "messages": messages, "max_tokens": 128, "stream": True}


class QueryStream(EventReader):
    """Seed 000's route."""

    name = path = "/query-stream/"
    method, sent_as = "GET", "params"

    def fields(self) -> dict[str, Any]:
        return {"query": "Hello!"}


class GenerateStream(EventReader):
    """Seed 001's route."""

    name = path = "/generate-stream"

    def fields(self) -> dict[str, Any]:
        return {"prompt": "Hello!", "temperature": 0.7, "max_tokens": 64}


class Generate(TextReader):
    """Seed 002's route."""

    name = path = "/generate"

    def fields(self) -> dict[str, Any]:
        return {"prompt": "Hello!", "temperature": 0.7, "top_k": 50, "max_tokens": 64}


class Textbot(TextReader):
    """Seed 003's route."""

    name, path, sent_as = "/?prompt=", "/", "params"

    def fields(self) -> dict[str, Any]:
        return {"prompt": "Tell me a story about dogs.", "max_tokens": 64}
