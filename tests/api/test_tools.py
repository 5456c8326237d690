"""Tools and reasoning in chat completions: split off, logged, and the same for who comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from http_rig import call, error, ok
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from rig import Answer, Letters, Rig, SteppedEngine, read, run, turns, until

from streamwell.backends.scripted import Faults
from streamwell.core.messages import ChatOptions, Message, PartKind
from streamwell.core.types import RunKind, RunRequest, RunSpec, SamplingOptions
from streamwell.server.convert.openai import completion_dict
from streamwell.service.admission import Admission
from streamwell.service.models import ModelTable
from streamwell.service.run_log import RunLog
from streamwell.service.runs import RunService
from streamwell.service.served_model import ServedModel
from streamwell.telemetry import Metrics
from streamwell.text.response_parser import ResponseParser
from streamwell.text.response_template import parse_response_template

pytestmark = pytest.mark.timeout(30)

PATH = "/v1/chat/completions"
TEMPLATE = parse_response_template(
    {
        "start_anchor": "assistant\n",
        "fields": {
            "content": {},
            "reasoning_content": {"open": "<think>", "close": "</think>"},
            "tool_calls": {
                "open": "<tool_call>",
                "close": "</tool_call>",
                "content": "json",
                "transform": {"function": "{content}"},
            },
        },
    }
)
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
OSLO = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
ROME = '<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>'
BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Weather?"}],
    "tools": [WEATHER],
    "seed": 1,
}


class Splitting(Letters):
    """Letters that know a response template; `<think>` at the end of a prompt begins reasoning."""

    def encode_chat(self, messages: Sequence[Message], options: ChatOptions) -> list[int]:
        begun = "<think>" if "enable_thinking" in options.template_kwargs else ""
        return self.encode_text(f"{options.tools}{messages[-1].content}assistant\n{begun}")

    def decode(self, ids: Sequence[int]) -> str:
        return super().decode([token_id for token_id in ids if token_id])

    def answer_parser(
        self, prompt_ids: Sequence[int], kinds: Sequence[PartKind]
    ) -> ResponseParser | None:
        return ResponseParser(TEMPLATE, kinds, TEMPLATE.answer_begun_in(self.decode(prompt_ids)))


def writes(answer: str, faults: Faults | None = None) -> SteppedEngine:
    """An engine that answers every prompt with this, and an end."""
    text = f"{answer}\0"
    return SteppedEngine(lambda _ids, _seed, index: ord(text[index]), eos_token_id=0, faults=faults)


async def _whole(rig: Rig, body: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The message and the reason of an answer that comes whole."""
    rig.engine.allow(1000)
    answer = await ok(rig, "POST", PATH, body)
    ChatCompletion.model_validate(answer, strict=False)
    choice = answer["choices"][0]
    return choice["message"], choice["finish_reason"]


def _merged(answer: Answer) -> tuple[dict[str, Any], str | None]:
    """The message and the reason that the chunks of a stream make."""
    message: dict[str, Any] = {}
    reason = None
    for block in b"".join(answer.bodies).decode().split("\n\n"):
        data = block.partition("data: ")[2]
        if not data.startswith("{"):
            continue
        chunk = json.loads(data)
        ChatCompletionChunk.model_validate(chunk, strict=True)
        choice = chunk["choices"][0]
        reason = choice["finish_reason"] or reason
        for name, value in choice["delta"].items():
            if name == "tool_calls":
                at = value[0].pop("index")
                message.setdefault(name, []).extend(value)
                assert at == len(message[name]) - 1
            elif name == "role":
                message[name] = value
            else:
                message[name] = message.get(name, "") + value
    return message, reason


async def _streamed(rig: Rig, body: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    rig.engine.allow(1000)
    return _merged(await call(rig, "POST", PATH, body | {"stream": True}))


def _calls(message: dict[str, Any]) -> list[tuple[str, Any]]:
    functions = [entry["function"] for entry in message.get("tool_calls", [])]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


OSLO_CALL, ROME_CALL = [("get_weather", {"city": city}) for city in ("Oslo", "Rome")]
THINK = {"chat_template_kwargs": {"enable_thinking": True}}
ANSWERS: list[tuple[str, dict[str, Any], str | None, str | None, list[Any], str]] = [
    # what the model writes, more of the request, content, reasoning, calls, reason
    ("It rains. ", {}, "It rains. ", None, [], "stop"),
    (OSLO, {}, None, None, [OSLO_CALL], "tool_calls"),
    (f"I look.\n{OSLO}\n{ROME}", {}, "I look.", None, [OSLO_CALL, ROME_CALL], "tool_calls"),
    (f"{OSLO}\nSo it is.", {}, "So it is.", None, [OSLO_CALL], "tool_calls"),
    (OSLO.removesuffix("</tool_call>"), {}, None, None, [OSLO_CALL], "tool_calls"),
    ("a <tool_call>{oops</tool_call> b", {}, "a <tool_call>{oops</tool_call> b", None, [], "stop"),
    ("a <tool_call>[1", {}, "a <tool_call>[1", None, [], "stop"),
    ("a <tool", {}, "a <tool", None, [], "stop"),
    ("<think>\nHm. \n</think>\n\nYes.", {}, "Yes.", "Hm.", [], "stop"),
    ("\nHm.</think>\n\nYes.", THINK, "Yes.", "Hm.", [], "stop"),
    (f"Hm.</think>{OSLO}", THINK, None, "Hm.", [OSLO_CALL], "tool_calls"),
    ("Hm.", THINK, "", "Hm.", [], "stop"),
    (OSLO, {"tools": None}, OSLO, None, [], "stop"),
    (OSLO, {"tool_choice": "none"}, OSLO, None, [], "stop"),
    (f"{OSLO} and more", {"max_tokens": 5}, "<tool", None, [], "length"),
    (f"{OSLO} and more", {"max_tokens": len(OSLO)}, None, None, [OSLO_CALL], "length"),
    (f"{OSLO} and more", {"stop": "</tool"}, None, None, [OSLO_CALL], "tool_calls"),
]


@pytest.mark.parametrize(("written", "fields", "content", "reasoning", "calls", "reason"), ANSWERS)
def test_an_answer_in_its_parts(
    written: str,
    fields: dict[str, Any],
    content: str | None,
    reasoning: str | None,
    calls: list[Any],
    reason: str,
) -> None:
    """Content, reasoning and calls are the same whole and streamed; nothing is lost."""

    async def test(rig: Rig) -> None:
        whole, why = await _whole(rig, BODY | fields)
        assert (content, reasoning) == (whole["content"], whole.get("reasoning_content"))
        assert (calls, reason) == (_calls(whole), why)

        streamed, why_streamed = await _streamed(rig, BODY | fields)
        assert (content or "", reasoning) == (
            streamed["content"],
            streamed.get("reasoning_content"),
        )
        assert (calls, reason) == (_calls(streamed), why_streamed)

    run(test, engine=writes(written), make_encoder=Splitting)


def _frames(answer: Answer) -> list[str]:
    return b"".join(answer.bodies).decode().split("\n\n")[:-1]


@pytest.mark.parametrize("num_tokens", [3, 40, len(OSLO) + 12, len(OSLO) + 40])
@pytest.mark.parametrize("faults", [None, Faults(die_at_token=30)])
def test_a_stream_that_is_cut_goes_on_with_the_same_frames(
    num_tokens: int, faults: Faults | None
) -> None:
    """Wherever it is cut, within a call or between two, and though the engine dies meanwhile."""

    async def test(rig: Rig) -> None:
        leave, answer = asyncio.Event(), Answer()
        body = BODY | {"stream": True, "n": 1}
        rig.engine.allow(num_tokens)
        sending = asyncio.create_task(call(rig, "POST", PATH, body, leave=leave, answer=answer))
        await until(lambda: rig.engine.stats().num_steps >= min(num_tokens, 20))
        await turns(20 * num_tokens)
        leave.set()
        await sending
        seen = _frames(answer)
        last_id = seen[-1].partition("\n")[0].removeprefix("id: ")
        run_id = last_id.partition(":")[0]

        rig.engine.allow(1000)
        headers = {"Last-Event-ID": last_id}
        rest = await call(rig, "GET", f"{PATH}/{run_id}", headers=headers)
        whole = await call(rig, "GET", f"{PATH}/{run_id}", query={"stream": "true"})
        assert seen + _frames(rest) == _frames(whole)
        assert ([OSLO_CALL, ROME_CALL], "tool_calls") == (
            _calls(_merged(whole)[0]),
            _merged(whole)[1],
        )
        again = await ok(rig, "GET", f"{PATH}/{run_id}")
        assert _merged(whole)[0]["tool_calls"] == again["choices"][0]["message"]["tool_calls"]

    engine = writes(f"I look.{OSLO}{ROME}.", faults=faults)
    run(test, engine=engine, make_encoder=Splitting, grace_s=1000)


@pytest.mark.parametrize("written", [f"I look.\n{OSLO}\n{ROME}", " a b <tool_call", "I see. "])
def test_no_number_is_missing(written: str) -> None:
    """Each event of the log has a chunk, also where text is held back and while a call grows."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(1000)
        frames = _frames(await call(rig, "POST", PATH, BODY | {"stream": True}))
        ids = [line for frame in frames for line in frame.split("\n") if line.startswith("id: ")]
        numbers = [int(one.rpartition(":")[2].partition(".")[0]) for one in ids]

        assert [*range(numbers[-1] + 1)] == sorted(set(numbers))
        assert numbers[-1] > len(written)

    run(test, engine=writes(written), make_encoder=Splitting)


@pytest.mark.parametrize("num_tokens", [0, 12, 40, len(OSLO) + 12])
def test_another_server_goes_on_within_a_call(
    monkeypatch: pytest.MonkeyPatch, num_tokens: int
) -> None:
    """It makes the parser again from the log: the answer is that of a server that lives on."""
    chat = ChatOptions(tools=json.dumps([WEATHER]))
    prompts = ((Message("user", "Weather?"),),)
    options = SamplingOptions(seed=1)
    request = RunRequest(kind=RunKind.CHAT, model="", prompts=prompts, chat=chat, options=options)

    async def test(rig: Rig) -> None:
        monkeypatch.setattr(type(rig.store), "is_durable", True)
        first = await rig.runs.start(request)
        rig.engine.allow(num_tokens)
        await turns(20 * num_tokens)
        await rig.runs.drain(0)
        logged = len(await rig.store.events(first.spec.run_id))

        async def adopt(_models: object, _run_id: str) -> list[RunSpec]:
            return [first.spec]

        monkeypatch.setattr(rig.store, "adopt", adopt)
        engine, log = writes(f"I look.{OSLO}{ROME}."), RunLog(rig.store)
        model = ServedModel(("m",), engine, Splitting, {})
        runs = RunService(
            ModelTable([model]), log, Admission(8), Metrics("0", lambda: {}), grace_s=1000
        )
        await log.open()
        await runs.recover()
        again = await runs.attach(first.spec.run_id, "")
        await model.load()
        engine.allow(1000)
        events = await read(again)
        again.close()
        await engine.stop()

        assert logged > num_tokens or not num_tokens
        choice = completion_dict(first.spec, events)["choices"][0]
        assert ("I look..", "tool_calls") == (choice["message"]["content"], choice["finish_reason"])
        assert [OSLO_CALL, ROME_CALL] == _calls(choice["message"])

    run(test, engine=writes(f"I look.{OSLO}{ROME}."), make_encoder=Splitting)


def test_each_choice_has_calls_of_its_own() -> None:
    """Ids of calls differ between choices, and are the same whenever they are shown."""

    async def test(rig: Rig) -> None:
        body = BODY | {"n": 2, "store": True}
        rig.engine.allow(1000)
        answer = await ok(rig, "POST", PATH, body)
        ids = [c["message"]["tool_calls"][0]["id"] for c in answer["choices"]]

        assert 2 == len({*ids})
        assert all(call_id.startswith("call_") and len(call_id) == 29 for call_id in ids)
        listed = await ok(rig, "GET", PATH)
        assert [answer] == listed["data"]

    run(test, engine=writes(OSLO), make_encoder=Splitting)


def test_the_same_request_again_has_the_same_calls() -> None:
    """An Idempotency-Key brings back the whole answer, ids of calls included."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(1000)
        headers = {"Idempotency-Key": "k"}
        first = await ok(rig, "POST", PATH, BODY, headers=headers)
        assert first == await ok(rig, "POST", PATH, BODY, headers=headers)
        assert first["choices"][0]["message"]["tool_calls"]

    run(test, engine=writes(OSLO), make_encoder=Splitting)


def test_what_was_called_and_what_came_of_it() -> None:
    """Messages with calls, and those of tools, are taken and kept as they were sent."""
    called = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "write", "arguments": json.dumps({"text": "x" * 70_000})},
    }
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "reasoning_content": "Ask.", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]

    async def test(rig: Rig) -> None:
        rig.engine.allow(1000)
        answer = await ok(rig, "POST", PATH, BODY | {"messages": messages, "store": True})
        kept = (await ok(rig, "GET", f"{PATH}/{answer['id']}/messages"))["data"]
        assert "It rains." == answer["choices"][0]["message"]["content"]
        assert ([called], "Ask.") == (kept[1]["tool_calls"], kept[1]["reasoning_content"])
        assert ("tool", "call_1", "rain") == tuple(
            kept[2][name] for name in ("role", "tool_call_id", "content")
        )

    run(test, engine=writes("It rains."), make_encoder=Splitting)


def test_other_routes_show_the_text_as_it_is() -> None:
    """A chat's own run has all that the model wrote."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(1000)
        answer = await ok(rig, "POST", PATH, BODY)
        shown = await ok(rig, "GET", f"/v1/runs/{answer['id']}")
        assert f"<think>Hm.</think>{OSLO}" == shown["choices"][0]["text"]
        assert answer["usage"] == shown["usage"]
        assert 11 == shown["usage"]["completion_tokens_details"]["reasoning_tokens"]

    run(test, engine=writes(f"<think>Hm.</think>{OSLO}"), make_encoder=Splitting)


def _deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def _tool(**fields: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"type": "function", "function": {"name": "f"} | fields}


def _said(**fields: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"messages": [{"role": "assistant", "content": ""} | fields]}


def _called(**fields: Any) -> dict[str, Any]:  # noqa: ANN401
    function = {"name": "f", "arguments": "{}"} | fields
    return _said(tool_calls=[{"id": "c", "type": "function", "function": function}])


ARGUMENTS = "messages.0.tool_calls.0.function.arguments"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tools": 7}, "tools"),
    ({"tools": [_tool(name=f"f{at}") for at in range(129)]}, "tools"),
    ({"tools": [{"type": "custom"}]}, "tools.0.type"),
    ({"tools": [_tool(name="two words")]}, "tools.0.function.name"),
    ({"tools": [_tool(name="n" * 65)]}, "tools.0.function.name"),
    ({"tools": [_tool(), _tool()]}, "tools.1.function.name"),
    ({"tools": [_tool(description="d" * 65_537)]}, "tools.0.function.description"),
    ({"tools": [_tool(description="\ud800")]}, "tools.0.function.description"),
    ({"tools": [_tool(parameters=[])]}, "tools.0.function.parameters"),
    ({"tools": [_tool(parameters=_deep(70))]}, "tools.0.function.parameters"),
    ({"tools": [_tool(parameters={"a": "x" * 70_000})]}, "tools.0.function.parameters"),
    ({"tools": [_tool(parameters={"a": "\ud800"})]}, "tools.0.function.parameters"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": _tool()}, "tool_choice"),
    ({"tools": [_tool()], "parallel_tool_calls": False}, "parallel_tool_calls"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
    ({"chat_template_kwargs": _deep(70)}, "chat_template_kwargs"),
    (_called(name="two words"), "messages.0.tool_calls.0.function.name"),
    (_called(arguments={}), ARGUMENTS),
    (_called(arguments="[]"), ARGUMENTS),
    (_called(arguments="{"), ARGUMENTS),
    (_called(arguments='{"a": NaN}'), ARGUMENTS),
    (_called(arguments='{"a": "\\ud800"}'), ARGUMENTS),
    (_called(arguments="[" * 65_000), ARGUMENTS),
    (
        _said(tool_calls=[{"function": {"name": "f", "arguments": "{}"}}]),
        "messages.0.tool_calls.0.id",
    ),
    (
        _said(role="user", tool_calls=_called()["messages"][0]["tool_calls"]),
        "messages.0.tool_calls",
    ),
    (_said(role="tool"), "messages.0.tool_call_id"),
    (_said(role="tool", tool_call_id="\ud800"), "messages.0.tool_call_id"),
    (_said(tool_call_id="c"), "messages.0.tool_call_id"),
    (_said(content=None), "messages.0.content"),
    (_said(content=None, tool_calls=[]), "messages.0.content"),
    (_said(role="user", reasoning_content="hm"), "messages.0.reasoning_content"),
    (_said(function_call={"name": "f"}), "messages.0.function_call"),
]


def test_what_is_wrong_is_refused_by_name() -> None:
    """Hostile, oversized or not served yet: 400 with the field."""

    async def test(rig: Rig) -> None:
        for fields, param in REFUSED:
            refusal = await error(rig, "POST", PATH, {"messages": BODY["messages"]} | fields)
            assert (400, param) == refusal[:2], fields

    run(test, make_encoder=Splitting)


def test_responses_still_refuse_tools() -> None:
    """There they come later."""

    async def test(rig: Rig) -> None:
        refusal = await error(rig, "POST", "/v1/responses", {"input": "Hi", "tools": [_tool()]})
        assert (400, "tools") == refusal[:2]
        await until(lambda: not rig.store.unended)

    run(test)
