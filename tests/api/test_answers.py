"""The application without sockets: what clients see of failures, and what they leave behind."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from http_rig import call
from rig import Answer, Rig, post, run, turns, until

from streamwell.backends.scripted import Faults
from streamwell.core.errors import StoreFailed

pytestmark = pytest.mark.timeout(30)

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 5},
    TEXT: {"prompt": "ab", "max_tokens": 5},
}
both = pytest.mark.parametrize("path", [CHAT, TEXT])


def _data(answer: Answer) -> list[Any]:
    """The payload of every frame; `[DONE]` as it is."""
    lines = b"".join(answer.bodies).decode().splitlines()
    payloads = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [payload if payload == "[DONE]" else json.loads(payload) for payload in payloads]


@both
def test_an_engine_that_keeps_dying_ends_a_stream_with_one_error(path: str) -> None:
    """The text so far, one error as the last frame, and no `[DONE]` that would call it success."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(100)
        answer = await post(rig, path, BODIES[path] | {"stream": True})
        data = _data(answer)

        assert 200 == answer.status
        assert ["error"] == list(data[-1])
        assert ("server_error", "engine_error") == (
            data[-1]["error"]["type"],
            data[-1]["error"]["code"],
        )
        assert all("choices" in payload for payload in data[:-1])
        assert b"" == answer.bodies[-1]

    run(test, faults=Faults(die_at_token=3, is_poisoned=True))


@both
def test_an_engine_that_keeps_dying_is_500_for_a_whole_answer(path: str) -> None:
    """Half an answer is none."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(100)
        answer = await post(rig, path, BODIES[path])

        assert (500, "engine_error") == (answer.status, answer.json["error"]["code"])

    run(test, faults=Faults(die_at_token=3, is_poisoned=True))


@both
def test_a_stream_whose_log_breaks_ends_with_an_error(path: str) -> None:
    """What could not be saved is not sent; the error is no event of the log, so it has no id."""

    async def test(rig: Rig) -> None:
        answering = asyncio.create_task(post(rig, path, BODIES[path] | {"stream": True}))
        rig.engine.allow(3)
        await until(lambda: rig.engine.stats().num_steps == 3)
        await turns()
        rig.store.failures = [StoreFailed("disk full")]
        rig.engine.allow(2)
        answer = await answering

        assert ["error"] == list(_data(answer)[-1])
        assert 1 == sum(list(payload) == ["error"] for payload in _data(answer))
        assert answer.bodies[-2].startswith(b"data: ")

    run(test)


@both
@pytest.mark.parametrize("stream", [True, False])
def test_a_run_that_cannot_be_saved_is_told(path: str, stream: bool) -> None:
    """A whole answer is refused with 503, a stream that has begun ends with one error."""

    async def test(rig: Rig) -> None:
        rig.store.failures = [StoreFailed("disk full")]
        answer = await post(rig, path, BODIES[path] | {"stream": stream})

        if stream:
            assert [["error"]] == [list(payload) for payload in _data(answer)]
        else:
            assert (503, "store_failed") == (answer.status, answer.json["error"]["code"])

    run(test)


@both
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("num_steps", [0, 1, 4])
def test_a_client_that_leaves_ends_its_run(path: str, stream: bool, num_steps: int) -> None:
    """Streaming or not, before or after the first token: the engine's work ends at once."""

    async def test(rig: Rig) -> None:
        leave = asyncio.Event()
        body = BODIES[path] | {"stream": stream, "max_tokens": 1000}
        answering = asyncio.create_task(post(rig, path, body, leave=leave))
        await until(lambda: rig.engine.num_open == 1)
        rig.engine.allow(num_steps)
        await turns()
        leave.set()
        await answering
        rig.engine.allow(100)
        await turns()

        assert num_steps == rig.engine.stats().num_steps
        assert (0, 0) == (rig.engine.num_open, rig.admission.num_live)
        assert not rig.store.unended

    run(test)


def test_a_client_that_has_left_before_it_is_answered() -> None:
    """Its request may have been read in full: nothing is generated for it."""

    async def test(rig: Rig) -> None:
        for stream in (True, False):
            leave = asyncio.Event()
            leave.set()
            await post(rig, TEXT, BODIES[TEXT] | {"stream": stream}, leave=leave)
            await turns()
            assert 0 == rig.admission.num_live
        rig.engine.allow(10)
        await turns()
        assert 0 == rig.engine.stats().num_steps

    run(test)


def test_a_full_server_says_when_to_come_back() -> None:
    """503 `overloaded` with `Retry-After`, also for a stream, and counted."""

    async def test(rig: Rig) -> None:
        leave = asyncio.Event()
        first = asyncio.create_task(post(rig, TEXT, BODIES[TEXT] | {"n": 2}, leave=leave))
        await until(lambda: rig.engine.num_open == 2)
        answer = await post(rig, TEXT, BODIES[TEXT] | {"stream": True})
        leave.set()
        await first

        assert (503, "overloaded") == (answer.status, answer.json["error"]["code"])
        assert int(answer.headers["retry-after"]) > 0
        rejected = b'streamwell_requests_rejected_total{reason="overloaded"} 1.0'
        assert rejected in rig.services.metrics.render()
        await turns()

    run(test, limit=2)


@pytest.mark.parametrize(("fields", "param"), [({"n": 3}, "n"), ({"prompt": ["a"] * 3}, "prompt")])
def test_what_there_is_never_room_for_is_refused(fields: dict[str, Any], param: str) -> None:
    """To come back later would not help; the field that asks for too much is named."""

    async def test(rig: Rig) -> None:
        answer = await post(rig, TEXT, BODIES[TEXT] | fields)

        error = answer.json["error"]
        assert (400, param) == (answer.status, error["param"])
        assert f"{param}: 3 choices; at most 2 are served" == error["message"]

    run(test, limit=2)


def test_a_name_that_is_no_text_is_told_apart_from_what_is_no_object() -> None:
    """JSON may have half a surrogate pair as the name of a field; nothing could name it."""

    async def test(rig: Rig) -> None:
        told = [
            (await call(rig, "POST", TEXT, body)).json["error"]["message"]
            for body in (b'{"prompt": "a", "\\ud800": 1}', b"[]")
        ]

        assert told == [
            "the name of a field has half a surrogate pair in it",
            "the body must be a JSON object, sent as application/json",
        ]

    run(test)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "a\u20ac"}]}, "messages"),
        (TEXT, {"prompt": "a\u20ac"}, "prompt"),
        (TEXT, {"prompt": ["ab", "a\u20ac"]}, "prompt"),
    ],
)
def test_text_that_the_model_has_no_tokens_for_is_refused(
    path: str, body: dict[str, Any], param: str, stream: bool
) -> None:
    """A tokenizer larger than its model is told as such, before the engine sees anything."""

    async def test(rig: Rig) -> None:
        answer = await post(rig, path, body | {"stream": stream})

        error = answer.json["error"]
        assert (400, param) == (answer.status, error["param"])
        assert "8364" in error["message"]
        assert "do not fit" in error["message"]

    run(test)


@pytest.mark.parametrize("stream", [False, True])
def test_a_process_that_ends_leaves_no_request_without_an_answer(stream: bool) -> None:
    """Who still waits is told to come back; a stream that has begun is cut."""

    async def test(rig: Rig) -> None:
        answer = Answer()
        answering = asyncio.create_task(post(rig, TEXT, BODIES[TEXT] | {"stream": stream}, answer))
        await until(lambda: rig.engine.num_open == 1 and stream == bool(answer.bodies))
        answering.cancel()
        await asyncio.wait([answering])
        if stream:
            assert answering.cancelled()
            assert 200 == answer.status
        else:
            assert (503, "shutting_down") == (answer.status, answer.json["error"]["code"])
            assert int(answer.headers["retry-after"]) > 0

    run(test)


def test_a_stream_whose_run_passes_to_another_server_is_told_so() -> None:
    """Its reader comes back, and misses nothing: the end that it is shown is not in the log."""

    async def test(rig: Rig) -> None:
        answer = Answer()
        answering = asyncio.create_task(post(rig, TEXT, BODIES[TEXT] | {"stream": True}, answer))
        await until(lambda: rig.engine.num_open == 1 and bool(answer.bodies))
        await rig.runs.log.release(answer.headers["x-run-id"])
        await answering

        last = answer.bodies[-2]
        assert last.startswith(b"retry: 2000\n")
        assert b'"code":"run_elsewhere"' in last

    run(test)


def test_a_log_that_does_not_last_is_no_fault_of_the_engine() -> None:
    """A whole answer that the end of the server cuts off is 503, wherever the log is kept."""

    async def test(rig: Rig) -> None:
        answering = asyncio.create_task(post(rig, TEXT, BODIES[TEXT]))
        await until(lambda: rig.engine.num_open == 1)
        await rig.runs.drain(0.0)
        answer = await answering

        assert (503, "shutting_down") == (answer.status, answer.json["error"]["code"])
        assert int(answer.headers["retry-after"]) > 0

    run(test)


def test_draining_a_second_time_ends_the_first() -> None:
    """Who drains with time to spare is not waited for once somebody is in a hurry."""

    async def test(rig: Rig) -> None:
        answering = asyncio.create_task(post(rig, TEXT, BODIES[TEXT]))
        await until(lambda: rig.engine.num_open == 1)
        draining = asyncio.create_task(rig.runs.drain(3600.0))
        await turns()
        assert not draining.done()
        await rig.runs.drain(0.0)
        await draining
        assert 503 == (await answering).status

    run(test)
