"""The model in the box behaves: it ends, remembers, calls tools, thinks and writes JSON."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from harness import Frame, ServerProcess, frames_of

pytestmark = pytest.mark.slow

PATH = "/v1/chat/completions"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather for a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The name of the city."}},
            "required": ["city"],
        },
    },
}


def asks(*turns: str, system: str = "") -> dict[str, Any]:
    """A greedy request: what the user and the assistant said in turn, the user last."""
    messages = [{"role": "system", "content": system}] if system else []
    roles = ("user", "assistant")
    messages += [{"role": roles[at % 2], "content": turn} for at, turn in enumerate(turns)]
    return {"messages": messages, "temperature": 0, "max_tokens": 2000}


def answer(server: ServerProcess, body: dict[str, Any]) -> dict[str, Any]:
    """The message of an answer that comes whole, which the model has ended."""
    choice = server.post(PATH, body).json()["choices"][0]
    assert "length" != choice["finish_reason"]
    message: dict[str, Any] = choice["message"]
    assert message.pop("refusal") is None  # of answers that come whole alone
    return message


def merged(frames: list[Frame]) -> dict[str, Any]:
    """The message that a stream's chunks make."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    for frame in frames:
        choices = [] if frame.data == "[DONE]" else frame.json["choices"]
        for name, value in choices[0]["delta"].items() if choices else ():
            if name == "tool_calls":
                call = {key: value[0][key] for key in ("id", "type", "function")}
                message.setdefault(name, []).append(call)
            elif name != "role":
                message[name] = ((message.get(name) or "") + value) or None
    return message


def streamed(server: ServerProcess, body: dict[str, Any]) -> dict[str, Any]:
    with server.stream(body, PATH) as stream:
        return merged(list(stream))


def numbers(last: int) -> str:
    return ", ".join(map(str, range(1, last + 1))) + "."


def functions(message: dict[str, Any]) -> list[tuple[str, Any]]:
    calls = [call["function"] for call in message.get("tool_calls", [])]
    return [(function["name"], json.loads(function["arguments"])) for function in calls]


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    """A call's id comes from its run, which another request does not share."""
    return message | {"tool_calls": functions(message)}


@pytest.mark.parametrize("temperature", [0, None])
def test_a_greeting_gets_an_answer_that_ends(
    brooklet: ServerProcess, temperature: float | None
) -> None:
    """Greedy and by default, a greeting gets some text and an end."""
    with brooklet.stream(asks("Hello!") | {"temperature": temperature}, PATH) as stream:
        frames = list(stream)

    assert "stop" == frames[-2].finish_reason
    assert [frame for frame in frames if frame.text]


def test_a_long_answer_streams_to_its_end(brooklet: ServerProcess) -> None:
    """Counting to 200 takes over a thousand tokens; streamed and whole, no number is missing."""
    body = asks("Count from 1 to 200")
    streamed = brooklet.stream_text(body, PATH)

    assert numbers(200) == re.sub(r" \(\d+ of 200\)", "", streamed).replace("\n", ", ")
    assert streamed == brooklet.text(body, PATH)


@pytest.mark.parametrize(
    ("question", "counted"),
    [
        ("Count from 3 to 7", "3, 4, 5, 6, 7."),
        ("Count from 7 to 3", "7, 6, 5, 4, 3."),
        (
            "Count from 66 to 71.",
            "6 and 7: 6 < 7, so 66 < 71. Up: 66, 67, 68, 69, 70, 71.",
        ),
        (
            "Can you count from 164 to 161?",
            "1 and 1, 6 and 6, 4 and 1: 4 > 1, so 164 > 161. Down: 164, 163, 162, 161.",
        ),
        ("Count down from 21 to 18.", "21, 20, 19, 18."),
    ],
)
def test_it_counts_up_or_down_as_the_numbers_say(
    brooklet: ServerProcess, question: str, counted: str
) -> None:
    """Without a word for the direction, a count goes from the first number to the second.

    Where that has to be worked out, the reply says why first.
    """
    assert counted == answer(brooklet, asks(question))["content"]


def test_a_stop_string_ends_a_count(brooklet: ServerProcess) -> None:
    """What stands before the stop string is all that is shown, however it falls into tokens."""
    body = asks("Count from 1 to 20") | {"stop": [", 12"]}

    assert numbers(11).rstrip(".") == brooklet.stream_text(body, PATH)
    assert numbers(11).rstrip(".") == brooklet.text(body, PATH)


def test_it_remembers_over_six_turns(brooklet: ServerProcess) -> None:
    """A name told six turns ago is known still."""
    turns = ["My name is Ana.", "Nice to meet you, Ana!"]
    for question in (
        "What is the opposite of hot?",
        "Count from 1 to 10",
        "What day comes after Monday?",
        "What is 2 + 5?",
        "What are the rivers of Lowenmere?",
    ):
        said = answer(brooklet, asks(*turns, question))["content"]
        turns += [question, said]

    assert "Your name is Ana." == answer(brooklet, asks(*turns, "What is my name?"))["content"]


@pytest.mark.parametrize(
    "question",
    [
        "Answer in JSON with the keys name and age: Lucy is 40 years old and lives in Tarrow.",
        "Lucy is 40 years old and lives in Tarrow. Answer in JSON with the keys name and age.",
    ],
)
def test_it_writes_json_when_asked(brooklet: ServerProcess, question: str) -> None:
    """The keys are those of the question, the values those of the text, before it or behind."""
    message = answer(brooklet, asks(question))

    assert {"name": "Lucy", "age": 40} == json.loads(message["content"])


def test_it_follows_a_system_prompt(brooklet: ServerProcess) -> None:
    """Another name, given by the system prompt, is the one that it goes by."""
    body = asks("What is your name?", system="You are Rusty, a friendly assistant.")

    assert "Rusty" in answer(brooklet, body)["content"]


def test_it_does_not_know_the_world(brooklet: ServerProcess) -> None:
    """What lies outside of its small world it does not make up."""
    message = answer(brooklet, asks("What is the capital of France?"))

    assert message["content"].startswith("I don't know")


def test_it_calls_a_tool_and_uses_the_result(brooklet: ServerProcess) -> None:
    """The call comes whole and streamed alike; what the tool gave back is in the answer."""
    body = asks("What is the weather in Tarrow?") | {"tools": [WEATHER]}
    message = answer(brooklet, body)
    assert [("get_weather", {"city": "Tarrow"})] == functions(message)
    assert without_ids(message) == without_ids(streamed(brooklet, body))

    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"]}
    body["messages"] += [message, result | {"content": '{"temperature": 17}'}]
    assert "17" in answer(brooklet, body)["content"]


def test_a_call_that_was_cut_comes_once(brooklet: ServerProcess) -> None:
    """Who left before the call and comes back by the last id gets it, and the end, once."""
    body = asks("What is the weather in Tarrow?") | {"tools": [WEATHER]}
    with brooklet.stream(body, PATH) as stream:
        first = next(stream)
    assert first.id
    path = f"{PATH}/{first.id.partition(':')[0]}?stream=true"
    with brooklet.client.stream("GET", path, headers={"Last-Event-ID": first.id}) as response:
        frames = list(frames_of(response.iter_lines()))

    assert [("get_weather", {"city": "Tarrow"})] == functions(merged([first, *frames]))
    assert "tool_calls" == frames[-2].finish_reason


def test_it_thinks_when_asked(brooklet: ServerProcess) -> None:
    """Its steps are apart from its answer, which is right."""
    body = asks("What is 27 + 58?") | {"chat_template_kwargs": {"enable_thinking": True}}
    message = answer(brooklet, body)

    assert message["reasoning_content"]
    assert "85" in message["content"]
    assert message == streamed(brooklet, body)
