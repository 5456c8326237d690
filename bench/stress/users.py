"""The users: each sends a request, reads its stream to the end, looks at it, and thinks a while.

Locust reads this file in an environment of its own, so nothing of the project is imported here.
"""

from __future__ import annotations

import random
import time
from typing import Any

from locust import HttpUser, between, task

MODELS = {"chat": "brooklet", "t5": "brooklet-t5"}
#: Seconds: no answer takes as long, and a server that hangs is a failure.
TIMEOUT_S = 120


class StreamUser(HttpUser):
    """Reads streams of one route; the end of a stream must be there, and text before it."""

    abstract = True
    wait_time = between(0.5, 2.0)
    name = ""
    path = ""
    method = "POST"

    def fields(self) -> dict[str, Any]:
        """The request's body, or its query."""
        raise NotImplementedError

    @task
    def ask(self) -> None:
        started_s = time.perf_counter()
        sent = {"json" if self.method == "POST" else "params": self.fields()}
        with self.client.request(
            self.method,
            self.path,
            name=self.name,
            stream=True,
            catch_response=True,
            timeout=TIMEOUT_S,
            **sent,
        ) as response:
            if response.status_code != 200:
                response.failure(f"status {response.status_code}: {response.text[:200]}")
                return
            lines = []
            # without a size a line is there as soon as it has come
            for line in response.iter_lines(chunk_size=None, decode_unicode=True):
                if not lines:
                    self._tell_first(started_s)
                lines.append(line)
            # for locust a stream is over when it begins
            response.request_meta["response_time"] = 1000 * (time.perf_counter() - started_s)
            num_texts = sum(line.startswith("data: {") for line in lines)
            if '"error"' in "".join(lines[-6:]):
                response.failure(f"an error in the stream: {lines[-6:]}")
            elif not any(line == "data: [DONE]" for line in lines[-4:]):
                response.failure(f"the stream has no end: {lines[-3:]}")
            elif not num_texts:
                response.failure("the stream has no text")

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


class Chat(StreamUser):
    """A conversation with the decoder, without `/v1` as in transformers-openai-api."""

    name, path = "chat", "/chat/completions"

    def fields(self) -> dict[str, Any]:
        prompt = random.choice(["Hello!", "Count to 20.", "What is 3 + 4?", "Tell me a story."])
        messages = [{"role": "user", "content": prompt}]
        return {"model": MODELS["chat"], "messages": messages, "max_tokens": 128, "stream": True}


class T5(StreamUser):
    """The encoder-decoder, at the same time."""

    name, path = "t5", "/chat/completions"

    def fields(self) -> dict[str, Any]:
        content = f"Write {random.randrange(10000)} in words"
        messages = [{"role": "user", "content": content}]
        return {"model": MODELS["t5"], "messages": messages, "max_tokens": 128, "stream": True}


class GenerateStream(StreamUser):
    """Seed 001's route."""

    name = path = "/generate-stream"

    def fields(self) -> dict[str, Any]:
        return {"prompt": "Hello!", "temperature": 0.7, "max_tokens": 64}


class QueryStream(StreamUser):
    """Seed 000's route."""

    name = path = "/query-stream/"
    method = "GET"

    def fields(self) -> dict[str, Any]:
        return {"query": "Hello!"}
