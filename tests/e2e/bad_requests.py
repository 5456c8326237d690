"""Requests that must be refused, and what with: the table of `test_bad_requests`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

CHAT, TEXT, MODELS = "/v1/chat/completions", "/v1/completions", "/v1/models"
MESSAGES = [{"role": "user", "content": "Hello!"}]
#: Over the 4 MiB that a server takes by default.
TOO_LARGE = b'{"prompt": "' + b"x" * (4 << 20) + b'"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    """One request and its refusal."""

    name: str
    path: str
    content: bytes
    param: str | None = None
    status: int = 400
    code: str | None = None
    method: str = "POST"
    is_chunked: bool = False

    @property
    def body(self) -> bytes | Iterator[bytes]:
        """The content; in pieces when its length is not announced."""
        size = 1 << 16
        pieces = (self.content[at : at + size] for at in range(0, len(self.content), size))
        return pieces if self.is_chunked else self.content


def _chat(name: str, param: str | None, code: str | None = None, /, **fields: Any) -> Bad:  # noqa: ANN401
    content = json.dumps({"messages": MESSAGES} | fields).encode()
    return Bad(name=f"chat: {name}", path=CHAT, content=content, param=param, code=code)


def _text(name: str, param: str | None, code: str | None = None, /, **fields: Any) -> Bad:  # noqa: ANN401
    content = json.dumps({"prompt": "Hello"} | fields).encode()
    return Bad(name=f"text: {name}", path=TEXT, content=content, param=param, code=code)


def _bytes(name: str, content: bytes, param: str | None = None, path: str = CHAT) -> Bad:
    return Bad(name=f"bytes: {name}", path=path, content=content, param=param)


def _user(content: object) -> list[dict[str, object]]:
    return [{"role": "user", "content": content}]


_MESSAGES = [
    _chat("no messages", "messages", messages=[]),
    _chat("messages is null", "messages", messages=None),
    _chat("messages is a text", "messages", messages="Hello"),
    _chat("a message is a text", "messages.0", messages=["Hello"]),
    _chat("content is a number", "messages.0.content", messages=_user(7)),
    _chat("content is null", "messages.0.content", messages=_user(None)),
    _chat("no content", "messages.0.content", messages=[{"role": "user"}]),
    _chat("no role", "messages.0.role", messages=[{"content": "Hello"}]),
    _chat("unknown role", "messages.0.role", messages=[{"role": "wizard", "content": "x"}]),
    _chat("half a surrogate pair", "messages.0.content", messages=_user("\ud800")),
    _chat("an image", "messages.0.content.0.type", messages=_user([{"type": "image_url"}])),
    _chat("over the context", "messages", "context_length_exceeded", messages=_user("no " * 5000)),
]

_PROMPTS = [
    _text("prompt is empty", "prompt", prompt=""),
    _text("no prompts", "prompt", prompt=[]),
    _text("prompt is an object", "prompt", prompt={"text": "Hello"}),
    _text("an empty list of ids", "prompt", prompt=[[]]),
    _text("texts and ids", "prompt", prompt=["Hello", 5]),
    _text("a truth value as id", "prompt", prompt=[1, True]),
    _text("an id out of vocabulary", "prompt", prompt=[1, 2048]),
    _text("a negative id", "prompt", prompt=[1, -1]),
    _text("too many prompts", "prompt", prompt=["Hello"] * 65),
    _text("over the context", "prompt", "context_length_exceeded", prompt=[5] * 4096),
    _bytes("no prompt", b"{}", "prompt", TEXT),
]

_NUMBERS = [
    _chat("n is 0", "n", n=0),
    _chat("n is a million", "n", n=10**6),
    _chat("n is a text", "n", n="2"),
    _chat("max_tokens is negative", "max_tokens", max_tokens=-1),
    _chat("max_tokens is 0", "max_tokens", max_tokens=0),
    _chat("max_tokens is a fraction", "max_tokens", max_tokens=1.5),
    _chat("max_tokens is huge", "max_tokens", max_tokens=10**30),
    _chat("max_completion_tokens is 0", "max_completion_tokens", max_completion_tokens=0),
    _chat("min_tokens is negative", "min_tokens", min_tokens=-1),
    _chat("temperature is negative", "temperature", temperature=-0.1),
    _chat("temperature is a text", "temperature", temperature="hot"),
    _chat("temperature is a truth value", "temperature", temperature=True),
    _chat("temperature is not a number", "temperature", temperature=float("nan")),
    _chat("temperature is infinite", "temperature", temperature=float("inf")),
    _chat("top_p is over 1", "top_p", top_p=1.1),
    _chat("top_k is -2", "top_k", top_k=-2),
    _chat("min_p is negative", "min_p", min_p=-0.1),
    _chat("presence_penalty is over 2", "presence_penalty", presence_penalty=2.1),
    _chat("frequency_penalty is not a number", "frequency_penalty", frequency_penalty=float("nan")),
    _chat("repetition_penalty is 0", "repetition_penalty", repetition_penalty=0),
    _chat("seed is a fraction", "seed", seed=0.5),
    _chat("seed is over 64 bits", "seed", seed=2**63),
    _chat("priority is a fraction", "priority", priority=0.5),
    _chat("priority is a truth value", "priority", priority=True),
    _chat("priority is over 32 bits", "priority", priority=2**31),
    _text("priority is a text", "priority", priority="high"),
    _chat("stream is a text", "stream", stream="yes"),
    _chat(
        "include_usage is a number",
        "stream_options.include_usage",
        stream_options={"include_usage": 1},
    ),
]

_TOKENS = [
    _chat("logit_bias out of vocabulary", "logit_bias", logit_bias={"2048": 1}),
    _chat("logit_bias of a negative id", "logit_bias", logit_bias={"-1": 1}),
    _chat("logit_bias of a word", "logit_bias", logit_bias={"word": 1}),
    _chat("logit_bias is too strong", "logit_bias", logit_bias={"5": 101}),
    _chat("logit_bias is not a number", "logit_bias.5", logit_bias={"5": float("nan")}),
    _chat("logit_bias is a list", "logit_bias", logit_bias=[5]),
    _chat("stop_token_ids out of vocabulary", "stop_token_ids", stop_token_ids=[2048]),
    _chat("stop_token_ids has a text", "stop_token_ids.0", stop_token_ids=["5"]),
    _chat("an empty stop", "stop.0", stop=""),
    _chat("five stops", "stop", stop=["a", "b", "c", "d", "e"]),
    _chat("a long stop", "stop.0", stop="x" * 257),
    _chat("a stop with half a surrogate pair", "stop.0", stop="\ud800"),
]

_UNSUPPORTED = [
    _text("tools", "tools", tools=[{"type": "function", "function": {"name": "f"}}]),
    _chat("logprobs", "logprobs", logprobs=True),
    _chat("top_logprobs", "top_logprobs", top_logprobs=5),
    _chat("json_schema", "response_format", response_format={"type": "json_schema"}),
    _chat("json_object", "response_format", response_format={"type": "json_object"}),
    _chat("tool_choice", "tool_choice", tool_choice="required"),
    _chat("audio", "audio", audio={"voice": "alloy"}),
    _chat("reasoning_effort", "reasoning_effort", reasoning_effort="high"),
    _text("echo", "echo", echo=True),
    _text("suffix", "suffix", suffix="the end"),
    _text("best_of", "best_of", best_of=3),
    _text("logprobs", "logprobs", logprobs=2),
    _text("logprobs of the chosen token alone", "logprobs", logprobs=0),
    _text("beam search", "use_beam_search", use_beam_search=True),
]

_JSON = [
    _bytes("no body", b""),
    _bytes("not JSON", b"{messages}"),
    _bytes("cut short", b'{"messages": [{"role": "user"'),
    _bytes("a list", b"[]"),
    _bytes("a number", b"7"),
    _bytes("null", b"null"),
    _bytes("not UTF-8", b'{"messages": "\xff\xfe"}'),
    _bytes("nested deeply", b"[" * 100_000),
    _bytes("nested deeply in a field", b'{"messages": ' + b'{"a":' * 100_000),
    _bytes("a number of 5000 digits", b'{"messages": [], "seed": ' + b"1" * 5000 + b"}"),
]

_HTTP = [
    Bad(
        name="unknown model",
        path=CHAT,
        status=404,
        code="model_not_found",
        content=json.dumps({"messages": MESSAGES, "model": "gpt-7"}).encode(),
    ),
    Bad(
        name="unknown model with half a surrogate pair",
        path=CHAT,
        status=404,
        code="model_not_found",
        content=b'{"messages":[{"role":"user","content":"x"}],"model":"\\ud800"}',
    ),
    Bad(
        name="wrong method",
        path=CHAT,
        status=405,
        code="method_not_allowed",
        method="PUT",
        content=b"",
    ),
    Bad(
        name="another wrong method", path=MODELS, status=405, code="method_not_allowed", content=b""
    ),
    Bad(name="unknown path", path="/v1/nonsense", status=404, code="not_found", content=b"{}"),
    Bad(
        name="unknown model card",
        path="/v1/models/gpt-7",
        status=404,
        code="model_not_found",
        method="GET",
        content=b"",
    ),
    Bad(name="too large", path=TEXT, status=413, code="request_too_large", content=TOO_LARGE),
    Bad(
        name="too large, in chunks",
        path=TEXT,
        status=413,
        code="request_too_large",
        content=TOO_LARGE,
        is_chunked=True,
    ),
]

TABLE = [*_MESSAGES, *_PROMPTS, *_NUMBERS, *_TOKENS, *_UNSUPPORTED, *_JSON, *_HTTP]
