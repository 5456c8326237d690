"""Events of a run's log to chunks and whole answers: tables of what stands for what."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from streamwell.core.types import (
    EventKind,
    FinishReason,
    RunEvent,
    RunKind,
    RunSpec,
    RunTerms,
    SamplingParams,
    Usage,
)
from streamwell.server.convert.openai import (
    ChunkEncoder,
    completion_dict,
)


def a_spec(kind: RunKind, num_choices: int = 1, *, include_usage: bool = False) -> RunSpec:
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
        terms=RunTerms(include_usage=include_usage),
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
USAGE = {
    "prompt_tokens": 2,
    "completion_tokens": 4,
    "total_tokens": 6,
    "completion_tokens_details": {"reasoning_tokens": 0},
}


def _payloads(kind: RunKind, events: list[RunEvent], *, include_usage: bool = False) -> list[Any]:
    encoder = ChunkEncoder(a_spec(kind, include_usage=include_usage))
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
    """An empty text, texts, reason, done: the first brings the id from which to go on."""
    *chunks, done = _payloads(RunKind.COMPLETION, EVENTS)

    assert [("", None), ("Hé", None), ("llo", None), ("", "stop")] == [
        (chunk["choices"][0]["text"], chunk["choices"][0]["finish_reason"]) for chunk in chunks
    ]
    assert {"text_completion"} == {chunk["object"] for chunk in chunks}
    assert "[DONE]" == done


@pytest.mark.parametrize("kind", [RunKind.CHAT, RunKind.COMPLETION])
def test_any_text_reaches_its_choice(kind: RunKind) -> None:
    """Quotes, control characters and emoji come through, in whichever choice."""
    texts = ['""', '\\" }', "\0\n\u2028", "\N{GRINNING FACE}"]
    events = [
        an_event(seq, EventKind.DELTA, text=text, index=seq % 2) for seq, text in enumerate(texts)
    ]
    choices = [chunk["choices"][0] for chunk in _payloads(kind, events, include_usage=True)]

    assert [0, 1, 0, 1] == [choice["index"] for choice in choices]
    assert texts == [
        choice.get("text", choice.get("delta", {}).get("content")) for choice in choices
    ]


@pytest.mark.parametrize("kind", [RunKind.CHAT, RunKind.COMPLETION])
def test_usage_when_asked_for(kind: RunKind) -> None:
    """`usage: null` in all chunks but the last, which has the usage and no choices."""
    *chunks, last, done = _payloads(kind, EVENTS, include_usage=True)

    assert all(chunk["usage"] is None for chunk in chunks)
    assert [] == last["choices"]
    assert USAGE | {"prompt_tokens_details": {"cached_tokens": 1}} == last["usage"]
    assert "[DONE]" == done


@pytest.mark.parametrize("kind", [RunKind.CHAT, RunKind.COMPLETION])
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
