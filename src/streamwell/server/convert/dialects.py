"""How chat completions differ for the clients of another project: its defaults, and its JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamwell.server.schemas.openai import ChatRequest

#: One JSON object of an answer to what the client is sent.
Reshape = Callable[[dict[str, Any]], dict[str, Any]]


def _as_it_is(answer: dict[str, Any]) -> dict[str, Any]:
    return answer


@dataclass(frozen=True, slots=True)
class Dialect:
    """What is filled into a request for a chat completion, and the shape of its answers."""

    #: By field, what counts where a request is silent.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    #: For the chunks of a stream, and for whole answers.
    chunk: Reshape = _as_it_is
    completion: Reshape = _as_it_is

    def complete(self, body: ChatRequest) -> ChatRequest:
        """The request with the defaults in it."""
        silent = {name: v for name, v in self.defaults.items() if getattr(body, name) is None}
        return body.model_copy(update=silent) if silent else body


OPENAI = Dialect()

#: The name that the clients of transformers-openai-api have for its one model.
MODEL_NAME = "model"


def _ordered(answer: dict[str, Any], choices: list[dict[str, Any]]) -> dict[str, Any]:
    """Its order of fields: the first ones as it prints them, then what else there is."""
    names = ("id", "choices", "created", "model", "object", "system_fingerprint")
    return {name: choices if name == "choices" else answer[name] for name in names} | {
        name: value for name, value in answer.items() if name not in names
    }


def _chunk(chunk: dict[str, Any]) -> dict[str, Any]:
    """Every chunk names all fields of its delta, those that say nothing with null."""
    empty = {"content": None, "function_call": None, "role": None, "tool_calls": None}
    choices = [
        {
            "delta": empty | choice["delta"],
            "finish_reason": choice["finish_reason"],
            "index": choice["index"],
            "logprobs": choice["logprobs"],
        }
        for choice in chunk["choices"]
    ]
    return _ordered(chunk, choices)


def _completion(completion: dict[str, Any]) -> dict[str, Any]:
    empty = {"content": None, "role": None, "function_call": None, "tool_calls": None}
    choices = [
        {
            "finish_reason": choice["finish_reason"],
            "index": choice["index"],
            "logprobs": choice["logprobs"],
            "message": empty | choice["message"],
            "stop_reason": None,
        }
        for choice in completion["choices"]
    ]
    return _ordered(completion, choices)


TRANSFORMERS_OPENAI_API = Dialect(
    defaults={
        "model": MODEL_NAME,
        "temperature": 0.9,
        "top_p": 0.95,
        "top_k": 50,
        "max_tokens": 256,
        "truncate": 2048,
        "repetition_penalty": 1.0,
        "stop": [],
    },
    chunk=_chunk,
    completion=_completion,
)
