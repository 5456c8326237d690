"""The stream of a response: its frames, their numbers, and how it is taken up again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from http_rig import Event, call, error, events_of, ok
from rig import Rig, run, turns, until

from streamwell.backends.scripted import Faults
from streamwell.core.errors import StoreFailed

pytestmark = pytest.mark.timeout(30)

PATH = "/v1/responses"
BODY: dict[str, Any] = {"input": "ab", "max_output_tokens": 3, "stream": True}
DELTA = "response.output_text.delta"
BEGINNING = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
]
ENDING = [
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]


async def _stream(rig: Rig, **fields: object) -> list[Event]:
    body = BODY | fields
    rig.engine.allow(body["max_output_tokens"])
    return events_of(await call(rig, "POST", PATH, body))


async def _again(rig: Rig, response_id: str, starting_after: object) -> list[Event]:
    query = {"stream": "true", "starting_after": starting_after}
    answer = await call(rig, "GET", f"{PATH}/{response_id}", query=query)
    assert 200 == answer.status, answer.bodies
    return events_of(answer)


def test_a_stream_has_openais_events_in_their_order() -> None:
    """Each names itself twice, the numbers are dense from 0, and the ids are those of the log."""

    async def test(rig: Rig) -> None:
        events = await _stream(rig)
        run_id = events[0].json["response"]["id"]

        names = [*BEGINNING, DELTA, DELTA, DELTA, *ENDING, "response.incomplete"]
        assert names == [event.name for event in events]
        assert names == [event.json["type"] for event in events]
        assert list(range(len(names))) == [event.json["sequence_number"] for event in events]
        ids = ["0.0", "0.1", "0.2", "0", "1", "2", "3", "4.0", "4.1", "4", "5"]
        assert [f"{run_id}:{place}" for place in ids] == [event.id for event in events]

    run(test)


def test_every_event_says_what_openais_says() -> None:
    """The fields of each kind of event; the whole text comes again at the end."""

    async def test(rig: Rig) -> None:
        bodies = [event.json for event in await _stream(rig)]
        run_id = bodies[0]["response"]["id"]
        item_id = f"msg_{run_id.removeprefix('resp_')}"
        at = {"item_id": item_id, "output_index": 0, "content_index": 0}
        part = {"type": "output_text", "text": "abc", "annotations": []}
        item = {"id": item_id, "type": "message", "status": "incomplete", "role": "assistant"}
        for body in bodies:
            del body["type"], body["sequence_number"]

        assert bodies[0] == bodies[1]
        assert ("in_progress", []) == (
            bodies[0]["response"]["status"],
            bodies[0]["response"]["output"],
        )
        begun = item | {"status": "in_progress", "content": []}
        assert {"output_index": 0, "item": begun} == bodies[2]
        assert at | {"part": part | {"text": ""}} == bodies[3]
        assert [at | {"delta": letter, "logprobs": []} for letter in "abc"] == bodies[4:7]
        assert at | {"text": "abc", "logprobs": []} == bodies[7]
        assert at | {"part": part} == bodies[8]
        assert {"output_index": 0, "item": item | {"content": [part]}} == bodies[9]
        assert {"response": await ok(rig, "GET", f"{PATH}/{run_id}")} == bodies[10]

    run(test)


def test_a_stream_can_be_taken_up_after_every_frame() -> None:
    """By number or by id: exactly the frames that are missing come, byte by byte the same."""

    async def test(rig: Rig) -> None:
        events = await _stream(rig)
        run_id = events[0].json["response"]["id"]

        assert events == await _again(rig, run_id, -1)
        for number in range(len(events) - 1):
            missing = events[number + 1 :]
            assert missing == await _again(rig, run_id, number)
            headers = {"Last-Event-ID": events[number].id or ""}
            answer = await call(rig, "GET", f"{PATH}/{run_id}", headers=headers)
            assert missing == events_of(answer)

    run(test)


def test_who_has_seen_the_end_is_told_so() -> None:
    """204 after the last frame, so that a client that reconnects by itself stops."""

    async def test(rig: Rig) -> None:
        events = await _stream(rig)
        path = f"{PATH}/{events[0].json['response']['id']}"
        query = {"stream": "true", "starting_after": len(events) - 1}

        assert 204 == (await call(rig, "GET", path, query=query)).status
        headers = {"Last-Event-ID": events[-1].id or ""}
        assert 204 == (await call(rig, "GET", path, headers=headers)).status

    run(test)


@pytest.mark.parametrize("number", [11, 2**40, "-2", "a", "1.0"])
def test_a_number_that_is_no_frames_is_refused(number: object) -> None:
    """400 beyond the end, and for what is no number; nothing is replayed instead."""

    async def test(rig: Rig) -> None:
        events = await _stream(rig)
        path = f"{PATH}/{events[0].json['response']['id']}"
        query = {"stream": "true", "starting_after": number}

        assert (400, "starting_after") == (await error(rig, "GET", path, query=query))[:2]

    run(test)


def test_an_id_of_another_response_is_refused() -> None:
    """Nobody gets another response's rest because ids were mixed up."""

    async def test(rig: Rig) -> None:
        one, other = [await _stream(rig) for _ in range(2)]
        path = f"{PATH}/{one[0].json['response']['id']}"
        headers = {"Last-Event-ID": other[4].id or ""}

        assert (400, "Last-Event-ID") == (await error(rig, "GET", path, headers=headers))[:2]

    run(test)


def test_a_response_that_is_generated_can_be_taken_up() -> None:
    """What was shown counts: the numbers go on, and the end has all of the text."""

    async def test(rig: Rig) -> None:
        leave = asyncio.Event()
        body = BODY | {"background": True}
        streaming = asyncio.create_task(call(rig, "POST", PATH, body, leave=leave))
        rig.engine.allow(2)
        await until(lambda: rig.engine.stats().num_steps == 2)
        await turns()
        leave.set()
        await streaming
        (run_id,) = rig.store.unended
        query = {"stream": "true", "starting_after": 6}
        assert (400, "starting_after") == (
            await error(rig, "GET", f"{PATH}/{run_id}", query=query)
        )[:2]
        resuming = asyncio.create_task(_again(rig, run_id, 4))
        await turns()
        rig.engine.allow(1)
        events = await resuming

        assert list(range(5, 11)) == [event.json["sequence_number"] for event in events]
        assert [DELTA, DELTA, *ENDING, "response.incomplete"] == [event.name for event in events]
        assert "abc" == events[2].json["text"]

    run(test)


def test_a_background_stream_goes_on_without_its_client() -> None:
    """The client leaves; the answer is complete all the same."""

    async def test(rig: Rig) -> None:
        leave = asyncio.Event()
        body = BODY | {"background": True}
        streaming = asyncio.create_task(call(rig, "POST", PATH, body, leave=leave))
        await until(lambda: rig.engine.num_open == 1)
        leave.set()
        await streaming
        (run_id,) = rig.store.unended
        rig.engine.allow(3)
        await until(lambda: not rig.store.unended)

        response = await ok(rig, "GET", f"{PATH}/{run_id}")
        assert "abc" == response["output"][0]["content"][0]["text"]

    run(test)


def test_the_last_event_says_how_it_ended() -> None:
    """Completed, cancelled by somebody else; the message is `incomplete` unless it is whole."""

    async def test(rig: Rig) -> None:
        completed = await _stream(rig, stop="c")
        assert ["completed"] == [e.json["item"]["status"] for e in completed[-2:-1]]
        assert "response.completed" == completed[-1].name

        streaming = asyncio.create_task(call(rig, "POST", PATH, BODY | {"max_output_tokens": 9}))
        await until(lambda: rig.engine.num_open == 1)
        (run_id,) = rig.store.unended
        await ok(rig, "POST", f"{PATH}/{run_id}/cancel")
        cancelled = events_of(await streaming)
        assert [*BEGINNING, *ENDING, "response.incomplete"] == [event.name for event in cancelled]
        assert "incomplete" == cancelled[-2].json["item"]["status"]
        assert "cancelled" == cancelled[-1].json["response"]["status"]

    run(test)


def test_a_failed_response_ends_with_its_error() -> None:
    """The text until then is closed like any other, and the response says what happened."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(100)
        events = events_of(await call(rig, "POST", PATH, BODY | {"max_output_tokens": 9}))

        assert [*ENDING, "response.failed"] == [event.name for event in events[-4:]]
        failed = events[-1].json["response"]
        assert ("failed", "server_error") == (failed["status"], failed["error"]["code"])
        assert list(range(len(events))) == [event.json["sequence_number"] for event in events]

    run(test, faults=Faults(die_at_token=2, is_poisoned=True))


def test_a_stream_whose_log_breaks_ends_with_an_error() -> None:
    """It is no event of the response: it has no id, and the number of the frame before it."""

    async def test(rig: Rig) -> None:
        streaming = asyncio.create_task(call(rig, "POST", PATH, BODY))
        rig.engine.allow(1)
        await until(lambda: rig.engine.stats().num_steps == 1)
        await turns()
        rig.store.failures = [StoreFailed("disk full")]
        rig.engine.allow(2)
        events = events_of(await streaming)

        assert [*BEGINNING, DELTA, "error"] == [event.name for event in events]
        last = events[-1]
        assert (None, 4, "store_failed") == (
            last.id,
            last.json["sequence_number"],
            last.json["code"],
        )
        assert last.json["error"]["message"] == last.json["message"]

    run(test)
