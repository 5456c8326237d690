"""The shape of another project's answers, and its defaults."""

from __future__ import annotations

import json
from typing import Any

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
from streamwell.server.convert.dialects import OPENAI, TRANSFORMERS_OPENAI_API
from streamwell.server.convert.openai import ChunkEncoder, completion_dict
from streamwell.server.schemas.openai import ChatRequest

EVENTS = [
    RunEvent(run_id="r", seq=0, kind=EventKind.START),
    RunEvent(run_id="r", seq=1, kind=EventKind.DELTA, text=' "George"', token_ids=(5,)),
    RunEvent(run_id="r", seq=2, kind=EventKind.FINISH, finish_reason=FinishReason.STOP),
    RunEvent(run_id="r", seq=3, kind=EventKind.END, usage=Usage(3, 1)),
]
#: As the project prints it, but for id, text and time.
CHUNK = (
    '{"id": "r", "choices": [{"delta": {"content": " \\"George\\"", "function_call": null, '
    '"role": null, "tool_calls": null}, "finish_reason": null, "index": 0, "logprobs": null}], '
    '"created": 1720157833, "model": "model", "object": "chat.completion.chunk", '
    '"system_fingerprint": null}'
)


def a_spec(kind: RunKind = RunKind.CHAT, *, include_usage: bool = False) -> RunSpec:
    return RunSpec(
        run_id="r",
        kind=kind,
        tenant="",
        model="model",
        created_s=1720157833,
        prompts=((1, 2, 3),),
        num_choices=1,
        sampling=SamplingParams(max_tokens=5),
        stop=(),
        terms=RunTerms(include_usage=include_usage),
    )


def chunks(spec: RunSpec) -> list[Any]:
    encoder = ChunkEncoder(spec, TRANSFORMERS_OPENAI_API)
    payloads = [payload for event in EVENTS for payload in encoder.payloads(event)]
    return [p.decode() if p == b"[DONE]" else json.loads(p) for p in payloads]


def in_order(value: Any) -> str:  # noqa: ANN401 - JSON
    """Its JSON, with its fields in their order."""
    return json.dumps(value)


def test_a_chunk_is_as_printed() -> None:
    """Fields, their order and the nulls; around it what that project leaves out."""
    first, text, last, done = chunks(a_spec())

    assert CHUNK == in_order(text)
    assert ("assistant", "") == tuple(first["choices"][0]["delta"][k] for k in ("role", "content"))
    assert ("stop", None) == (
        last["choices"][0]["finish_reason"],
        last["choices"][0]["delta"]["content"],
    )
    assert "[DONE]" == done


def test_usage_comes_when_it_is_asked_for() -> None:
    """As in any stream: a chunk of its own without choices, null before."""
    *before, usage, _ = chunks(a_spec(include_usage=True))

    assert ([], 4) == (usage["choices"], usage["usage"]["total_tokens"])
    assert all(chunk["usage"] is None for chunk in before)


def test_a_whole_answer_has_its_fields() -> None:
    """`stop_reason` is null, the message names calls, and the usage is filled."""
    answer = TRANSFORMERS_OPENAI_API.completion(completion_dict(a_spec(), EVENTS))
    choice = answer["choices"][0]

    assert ["id", "choices", "created", "model", "object", "system_fingerprint", "usage"] == list(
        answer
    )
    assert ["finish_reason", "index", "logprobs", "message", "stop_reason"] == list(choice)
    assert ["content", "role", "function_call", "tool_calls"] == list(choice["message"])[:4]
    assert (' "George"', "assistant", None) == (
        choice["message"]["content"],
        choice["message"]["role"],
        choice["stop_reason"],
    )
    assert 4 == answer["usage"]["total_tokens"]


def test_text_completions_stay_as_they_are() -> None:
    """That project has none."""
    plain, shaped = (
        [ChunkEncoder(a_spec(RunKind.COMPLETION), dialect).payloads(event) for event in EVENTS]
        for dialect in (OPENAI, TRANSFORMERS_OPENAI_API)
    )

    assert plain == shaped


def test_defaults_fill_only_what_is_silent() -> None:
    """What the request says stays; OpenAI's dialect fills in nothing."""
    body = ChatRequest.model_validate(
        {"messages": [{"role": "user", "content": "a"}], "temperature": 0, "max_tokens": 3}
    )
    filled = TRANSFORMERS_OPENAI_API.complete(body)

    assert (0, 3, 0.95, 50) == (filled.temperature, filled.max_tokens, filled.top_p, filled.top_k)
    assert ("model", 2048, 1.0, []) == (
        filled.model,
        filled.truncate,
        filled.repetition_penalty,
        filled.stop,
    )
    assert body is OPENAI.complete(body)
