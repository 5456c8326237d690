"""Wire models to run requests: tables of what stands for what."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from streamwell.core.errors import InvalidRequest
from streamwell.core.types import (
    Message,
    RunKind,
    SamplingOptions,
)
from streamwell.server.convert.openai import (
    chat_run,
    completion_run,
)
from streamwell.server.convert.unsupported import (
    refuse_unsupported,
    refuse_unsupported_in_chat,
)
from streamwell.server.schemas.fields import WireModel
from streamwell.server.schemas.openai import ChatRequest, CompletionRequest
from streamwell.server.schemas.responses import ResponseRequest
from streamwell.server.schemas.runs import StartRunRequest

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
            Message("user", "a\nb"),
        ),
        (
            {"role": "assistant", "content": [{"type": "text", "text": t} for t in ("a", "b")]},
            Message("assistant", "ab"),
        ),
        (
            {"role": "assistant", "content": "a", "reasoning_content": "because"},
            Message("assistant", "a", reasoning="because"),
        ),
    ],
)
def test_messages(message: dict[str, Any], expected: Message) -> None:
    """Roles are three; parts are lines, but for those of an answer."""
    assert ((expected,),) == chat_run(chat(messages=[message]), "t").prompts


@pytest.mark.parametrize(
    ("model", "field"),
    [(ChatRequest, "messages"), (StartRunRequest, "messages"), (ResponseRequest, "input")],
)
def test_one_mistake_is_enough(model: type[WireModel], field: str) -> None:
    """A long list of bad messages costs the errors of the first, and not thousands."""
    for messages in ([{}] * 2000, [HELLO | {"content": [{}] * 2000}]):
        with pytest.raises(ValidationError) as refused:
            model.model_validate({field: messages})
        assert refused.value.error_count() <= 2


@pytest.mark.parametrize("field", ["metadata", "logit_bias"])
def test_too_many_pairs_are_one_mistake(field: str) -> None:
    """However wrong each of them is."""
    with pytest.raises(ValidationError) as refused:
        chat(**{field: {str(at): "x" if field == "logit_bias" else at for at in range(5000)}})

    assert [(field,)] == [error["loc"] for error in refused.value.errors()]


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
NULLS += ["min_tokens", "stop_token_ids", "stream", "stream_options", "user", "priority"]


@pytest.mark.parametrize("name", NULLS)
def test_null_asks_for_nothing(name: str) -> None:
    """Each optional field may be null, and means the same as when it is left out."""
    assert chat_run(chat(), "t") == chat_run(chat(**{name: None}), "t")
    assert completion_run(completion(), "t") == completion_run(completion(**{name: None}), "t")


def test_the_rest_of_a_run() -> None:
    """Kind, model, choices, stop strings, tenant and priority."""
    fields = {"max_completion_tokens": 7, "max_tokens": 9, "priority": -2}
    run = chat_run(chat(model="m", n=3, stop="x", **fields), "t")

    assert (-2, RunKind.CHAT, "m", 3, ("x",), "t") == (
        run.priority,
        run.kind,
        run.model,
        run.num_choices,
        run.stop,
        run.tenant,
    )
    assert 7 == run.options.max_tokens
    run = completion_run(completion(stop=["x", "y"], priority=7), "t")
    assert (7, RunKind.COMPLETION, "", 1, ("x", "y")) == (
        run.priority,
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
        ({"safety_identifier": "x", "service_tier": "flex"}, []),
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
        ("add_special_tokens", False),
        ("include_stop_str_in_output", True),
        ("verbosity", "low"),
    ],
)
def test_what_would_change_the_answer_is_refused(name: str, value: object) -> None:
    """A known parameter that is not served is never ignored."""
    with pytest.raises(InvalidRequest, match=name) as refused:
        refuse_unsupported({"foo": 1, name: value})

    assert name == refused.value.param


def test_what_is_neutral_depends_on_the_route() -> None:
    """A text gets its special tokens from the tokenizer, a chat from the template."""
    assert [] == refuse_unsupported({"add_special_tokens": True})
    assert [] == refuse_unsupported_in_chat({"add_special_tokens": False})
    with pytest.raises(InvalidRequest, match="add_special_tokens"):
        refuse_unsupported_in_chat({"add_special_tokens": True})


def test_options_of_the_stream_are_looked_at() -> None:
    """A field within a field is refused, or noted, under its whole name."""
    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
    usual = ChatRequest.model_validate(body | {"stream_options": {"include_usage": True}})
    odd = ChatRequest.model_validate(body | {"stream_options": {"foo": 1}})
    each = ChatRequest.model_validate(body | {"stream_options": {"continuous_usage_stats": True}})
    padded = ChatRequest.model_validate(body | {"stream_options": {"include_obfuscation": True}})

    assert [] == refuse_unsupported_in_chat(usual.extra_fields)
    assert ["stream_options.foo"] == refuse_unsupported_in_chat(odd.extra_fields)
    assert [] == refuse_unsupported_in_chat(each.extra_fields)
    with pytest.raises(InvalidRequest, match=r"stream_options\.include_obfuscation"):
        refuse_unsupported_in_chat(padded.extra_fields)
