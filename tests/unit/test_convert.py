"""Wire models to run requests, events to chunks: tables of what stands for what."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from streamwell.core.errors import InvalidRequest
from streamwell.core.types import (
    EventKind,
    FinishReason,
    Message,
    RunEvent,
    RunKind,
    RunSpec,
    SamplingOptions,
    SamplingParams,
    Usage,
)
from streamwell.server.convert.openai import (
    ChunkEncoder,
    chat_run,
    completion_dict,
    completion_run,
)
from streamwell.server.convert.unsupported import refuse_unsupported
from streamwell.server.schemas.openai import ChatRequest, CompletionRequest

HELLO = {"role": "user", "content": "Hello"}


def chat(**fields: Any) -> ChatRequest:  # noqa: ANN401
    return ChatRequest.model_validate({"messages": [HELLO]} | fields)


def completion(**fields: Any) -> CompletionRequest:  # noqa: ANN401
    return CompletionRequest.model_validate({"prompt": "Hello"} | fields)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (HELLO, Message("user", "Hello")),
        ({"role": "system", "content": "s"}, Message("system", "s")),
        ({"role": "developer", "content": "s"}, Message("system", "s")),
        ({"role": "assistant", "content": ""}, Message("assistant", "")),
        (
            {"role": "user", "content": [{"type": "text", "text": t} for t in ("a", "b")]},
            Message("user", "ab"),
        ),
    ],
)
def test_messages(message: dict[str, Any], expected: Message) -> None:
    """Roles are three, parts of a content are joined."""
    assert ((expected,),) == chat_run(chat(messages=[message]), "t").prompts


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a", ("a",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ((1, 2),)),
        ([[1, 2], [3]], ((1, 2), (3,))),
        (["a", [3]], ("a", (3,))),
    ],
)
def test_prompts(prompt: object, expected: tuple[object, ...]) -> None:
    """A text, ids, or a list of either."""
    assert expected == completion_run(completion(prompt=prompt), "t").prompts


OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"max_tokens": 5}, {"max_tokens": 5}),
    ({"seed": -3}, {"seed": -3}),
    ({"temperature": 0}, {"temperature": 0}),
    ({"top_p": 0}, {"top_p": 0}),
    ({"top_k": 3}, {"top_k": 3}),
    ({"top_k": -1}, {"top_k": 0}),  # vLLM's word for off
    ({"min_p": 0.5}, {"min_p": 0.5}),
    ({"repetition_penalty": 2}, {"repetition_penalty": 2}),
    ({"presence_penalty": -2}, {"presence_penalty": -2}),
    ({"frequency_penalty": 2}, {"frequency_penalty": 2}),
    ({"logit_bias": {"7": -100, "8": 1.5}}, {"logit_bias": ((7, -100), (8, 1.5))}),
    ({"min_tokens": 4}, {"min_tokens": 4}),
    ({"ignore_eos": True}, {"ignore_eos": True}),
    ({"stop_token_ids": [1, 2]}, {"stop_token_ids": (1, 2)}),
]


@pytest.mark.parametrize(("fields", "expected"), OPTIONS)
def test_options(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    """What is asked is kept, what is not asked stays open; the same for both routes."""
    assert SamplingOptions(**expected) == chat_run(chat(**fields), "t").options
    assert SamplingOptions(**expected) == completion_run(completion(**fields), "t").options


NULLS = ["model", "max_tokens", "temperature", "top_p", "top_k", "min_p", "stop", "seed", "n"]
NULLS += ["presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "ignore_eos"]
NULLS += ["min_tokens", "stop_token_ids", "stream", "stream_options", "user"]


@pytest.mark.parametrize("name", NULLS)
def test_null_asks_for_nothing(name: str) -> None:
    """Each optional field may be null, and means the same as when it is left out."""
    assert chat_run(chat(), "t") == chat_run(chat(**{name: None}), "t")
    assert completion_run(completion(), "t") == completion_run(completion(**{name: None}), "t")


def test_the_rest_of_a_run() -> None:
    """Kind, model, choices, stop strings and tenant."""
    run = chat_run(chat(model="m", n=3, stop="x", max_completion_tokens=7, max_tokens=9), "t")

    assert (RunKind.CHAT, "m", 3, ("x",), "t") == (
        run.kind,
        run.model,
        run.num_choices,
        run.stop,
        run.tenant,
    )
    assert 7 == run.options.max_tokens
    run = completion_run(completion(stop=["x", "y"]), "t")
    assert (RunKind.COMPLETION, "", 1, ("x", "y")) == (
        run.kind,
        run.model,
        run.num_choices,
        run.stop,
    )


@pytest.mark.parametrize(
    ("fields", "unknown"),
    [
        (None, []),
        ({"frobnicate": 1, "foo": None}, ["frobnicate", "foo"]),
        ({"tools": [], "tool_choice": "auto", "logprobs": False}, []),
        ({"tools": None, "response_format": {"type": "text"}}, []),
        ({"metadata": {}, "store": True, "service_tier": "flex"}, []),
    ],
)
def test_what_changes_nothing_is_tolerated(
    fields: dict[str, Any] | None, unknown: list[str]
) -> None:
    """Neutral values and notes pass; the names nobody knows are returned."""
    assert unknown == refuse_unsupported(fields)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{}]),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function"}),
        ("logprobs", True),
        ("logprobs", 0),  # of the chosen token alone; 0 is not False here
        ("logprobs", 5),
        ("top_logprobs", 1),
        ("echo", True),
        ("best_of", 2),
        ("suffix", "x"),
        ("response_format", {"type": "json_object"}),
        ("guided_regex", "a*"),
        ("continue_final_message", True),
        ("audio", {}),
        ("modalities", ["text", "audio"]),
        ("skip_special_tokens", False),
    ],
)
def test_what_would_change_the_answer_is_refused(name: str, value: object) -> None:
    """A known parameter that is not served is never ignored."""
    with pytest.raises(InvalidRequest, match=name) as refused:
        refuse_unsupported({"foo": 1, name: value})

    assert name == refused.value.param


def a_spec(kind: RunKind, num_choices: int = 1) -> RunSpec:
    return RunSpec(
        run_id=f"{kind}-1",
        kind=kind,
        tenant="",
        model="m",
        created_s=123,
        prompts=((1, 2),),
        num_choices=num_choices,
        sampling=SamplingParams(max_tokens=9),
        stop=(),
    )


def an_event(seq: int, kind: EventKind, **fields: Any) -> RunEvent:  # noqa: ANN401
    return RunEvent(run_id="r", seq=seq, kind=kind, **fields)


EVENTS = [
    an_event(0, EventKind.START),
    an_event(1, EventKind.DELTA, text="Hé", token_ids=(1, 2)),
    an_event(2, EventKind.DELTA, text="llo", token_ids=(3,)),
    an_event(3, EventKind.FINISH, finish_reason=FinishReason.STOP, token_ids=(4,)),
    an_event(4, EventKind.END, usage=Usage(2, 4, 1)),
]
USAGE = {"prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6}


def _payloads(kind: RunKind, events: list[RunEvent], *, include_usage: bool = False) -> list[Any]:
    encoder = ChunkEncoder(a_spec(kind), include_usage=include_usage)
    payloads = [payload for event in events for payload in encoder.payloads(event)]
    return [p.decode() if p == b"[DONE]" else json.loads(p) for p in payloads]


def test_chunks_of_a_chat() -> None:
    """Role, texts, reason, done; every chunk is one that OpenAI's own types accept."""
    *chunks, done = _payloads(RunKind.CHAT, EVENTS)
    choices = [chunk["choices"][0] for chunk in chunks]

    assert [
        {"role": "assistant", "content": ""},
        {"content": "Hé"},
        {"content": "llo"},
        {},
    ] == [choice["delta"] for choice in choices]
    assert [None, None, None, "stop"] == [choice["finish_reason"] for choice in choices]
    assert "[DONE]" == done
    assert {("chatcmpl-1", 123, "m")} == {(c["id"], c["created"], c["model"]) for c in chunks}
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)
        assert "usage" not in chunk


def test_chunks_of_a_completion() -> None:
    """Texts, reason, done; nothing is said when a choice starts."""
    *chunks, done = _payloads(RunKind.COMPLETION, EVENTS)

    assert [("Hé", None), ("llo", None), ("", "stop")] == [
        (chunk["choices"][0]["text"], chunk["choices"][0]["finish_reason"]) for chunk in chunks
    ]
    assert {"text_completion"} == {chunk["object"] for chunk in chunks}
    assert "[DONE]" == done


@pytest.mark.parametrize("kind", RunKind)
def test_usage_when_asked_for(kind: RunKind) -> None:
    """`usage: null` in all chunks but the last, which has the usage and no choices."""
    *chunks, last, done = _payloads(kind, EVENTS, include_usage=True)

    assert all(chunk["usage"] is None for chunk in chunks)
    assert [] == last["choices"]
    assert USAGE | {"prompt_tokens_details": {"cached_tokens": 1}} == last["usage"]
    assert "[DONE]" == done


@pytest.mark.parametrize("kind", RunKind)
def test_an_error_is_the_last_frame(kind: RunKind) -> None:
    """A failed choice has no reason chunk; the error ends the stream without `[DONE]`."""
    failed = an_event(3, EventKind.FINISH, finish_reason=FinishReason.ERROR)
    end = an_event(4, EventKind.END, usage=Usage(2, 3), error="it broke", error_code="engine_error")
    payloads = _payloads(kind, [*EVENTS[:3], failed, end], include_usage=True)

    assert {
        "message": "it broke",
        "type": "server_error",
        "param": None,
        "code": "engine_error",
    } == (payloads[-1]["error"])
    assert all(p["choices"][0]["finish_reason"] is None for p in payloads[:-1])
    assert "[DONE]" not in payloads


def test_a_whole_chat() -> None:
    """The joined text in one message, with the reason and the usage."""
    answer = completion_dict(a_spec(RunKind.CHAT), EVENTS)
    parsed = ChatCompletion.model_validate(answer, strict=False)

    assert ("Héllo", "stop") == (parsed.choices[0].message.content, parsed.choices[0].finish_reason)
    assert USAGE | {"prompt_tokens_details": {"cached_tokens": 1}} == answer["usage"]


def test_a_whole_completion_of_two_choices() -> None:
    """Choices are in order of their index, however their events came; an empty one is there too."""
    events = [
        an_event(0, EventKind.START, index=0),
        an_event(1, EventKind.START, index=1),
        an_event(2, EventKind.DELTA, index=1, text="b"),
        an_event(3, EventKind.FINISH, index=1, finish_reason=FinishReason.LENGTH),
        an_event(4, EventKind.FINISH, index=0, finish_reason=FinishReason.STOP),
        an_event(5, EventKind.END, usage=Usage(2, 2)),
    ]
    answer = completion_dict(a_spec(RunKind.COMPLETION, num_choices=2), events)

    Completion.model_validate(answer | {"usage": None}, strict=False)
    assert [(0, "", "stop"), (1, "b", "length")] == [
        (choice["index"], choice["text"], choice["finish_reason"]) for choice in answer["choices"]
    ]
