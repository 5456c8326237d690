"""`/v1/responses` without sockets: what is asked, what is answered, and what is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from http_rig import call, error, ok
from rig import Rig, run, turns, until

from streamwell.backends.scripted import Faults

pytestmark = pytest.mark.timeout(30)

PATH = "/v1/responses"
BODY: dict[str, Any] = {"input": "ab", "max_output_tokens": 5}
NOT_FOUND = (404, "previous_response_id", "previous_response_not_found")


def _text(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])


async def _prompt(rig: Rig, response_id: str) -> str:
    spec = await rig.store.run(response_id)
    assert spec is not None
    return "".join(map(chr, spec.prompts[0]))


async def _answer(rig: Rig, **fields: object) -> dict[str, Any]:
    """A response that has ended."""
    body = BODY | fields
    rig.engine.allow(body["max_output_tokens"])
    return await ok(rig, "POST", PATH, body)


def test_a_repeated_request_has_the_same_prompt() -> None:
    """One that was cancelled is begun anew, with what was said before and the instructions."""

    async def test(rig: Rig) -> None:
        first = await _answer(rig, max_output_tokens=3)
        body = BODY | {"instructions": "x", "previous_response_id": first["id"]}
        prompts = []
        for _ in range(2):
            leave = asyncio.Event()
            asking = asyncio.create_task(
                call(rig, "POST", PATH, body, headers={"idempotency-key": "k"}, leave=leave)
            )
            await until(lambda: bool(rig.store.unended))
            (response_id,) = rig.store.unended
            prompts.append(await _prompt(rig, response_id))
            await rig.runs.cancel(response_id, "")
            leave.set()
            await asking

        assert "abc" in prompts[0]
        assert [prompts[0]] * 2 == prompts

    run(test)


@pytest.mark.parametrize("path", [PATH, "/responses"])
def test_a_text_is_answered_with_a_response_object(path: str) -> None:
    """Every field that OpenAI's object has and that says something here."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(5)
        body = BODY | {"temperature": 0.5, "top_p": 0.9, "metadata": {"a": "b"}, "seed": 3}
        response = await ok(rig, "POST", path, body | {"instructions": "x"})
        response_id = response["id"]
        item_id = f"msg_{response_id.removeprefix('resp_')}"

        assert isinstance(response.pop("created_at"), int)
        assert {
            "id": response_id,
            "object": "response",
            "status": "incomplete",
            "background": False,
            "conversation": None,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"},
            "instructions": "x",
            "max_output_tokens": 5,
            "metadata": {"a": "b"},
            "model": "m",
            "output": [
                {
                    "id": item_id,
                    "type": "message",
                    "status": "incomplete",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "abcde", "annotations": []}],
                }
            ],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "store": True,
            "temperature": 0.5,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": 0.9,
            "truncation": "disabled",
            "usage": {
                "input_tokens": 3,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 5,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 8,
            },
        } == response

    run(test)


def test_an_answer_that_ends_by_itself_is_completed() -> None:
    """A stop string makes both the response and its message `completed`."""

    async def test(rig: Rig) -> None:
        response = await _answer(rig, stop="d")

        assert ("completed", None) == (response["status"], response["incomplete_details"])
        assert ("completed", "abc") == (response["output"][0]["status"], _text(response))

    run(test)


def test_without_a_bound_an_answer_ends_with_the_context() -> None:
    """Responses are not cut after the few tokens of a text completion."""

    async def test(rig: Rig) -> None:
        response = await ok(rig, "POST", PATH, {"input": "ab", "background": True})

        assert response["max_output_tokens"] > 1000
        await call(rig, "POST", f"{PATH}/{response['id']}/cancel")

    run(test)


def test_messages_may_have_any_role_and_several_parts() -> None:
    """The parts of a message are lines; what an earlier answer gave can be sent back as it is."""

    async def test(rig: Rig) -> None:
        first = await _answer(rig)
        messages = [
            {"role": "developer", "content": "A"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "B"}]},
            *first["output"],
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "C"},
                    {"type": "input_text", "text": "D"},
                ],
            },
        ]
        response = await _answer(rig, input=messages)

        assert "ABabcdeC\nD" == await _prompt(rig, response["id"])

    run(test)


def test_a_response_goes_on_from_the_one_before() -> None:
    """All that was said before is in the prompt; instructions are only those of the request."""

    async def test(rig: Rig) -> None:
        first = await _answer(rig, input="1", instructions="I", max_output_tokens=2)
        second = await _answer(
            rig, input="2", previous_response_id=first["id"], max_output_tokens=3
        )
        third = await _answer(
            rig, input="3", previous_response_id=second["id"], instructions="J", store=False
        )

        assert "I1" == await _prompt(rig, first["id"])
        assert "1ab2" == await _prompt(rig, second["id"])
        assert "J1ab2abc3" == await _prompt(rig, third["id"])
        assert (None, first["id"]) == (second["instructions"], second["previous_response_id"])
        assert third["store"] is False

    run(test)


def test_what_cannot_be_gone_on_from_is_told() -> None:
    """409 for a response that has not ended; 404 for an unknown, a deleted and a wrong one."""

    async def test(rig: Rig) -> None:
        async def refusal(response_id: str) -> tuple[int, str | None, str | None]:
            return await error(rig, "POST", PATH, BODY | {"previous_response_id": response_id})

        deleted = await _answer(rig)
        await call(rig, "DELETE", f"{PATH}/{deleted['id']}")
        rig.engine.allow(1)
        chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
        completion = await ok(rig, "POST", "/v1/chat/completions", chat)
        live = await ok(rig, "POST", PATH, BODY | {"background": True})

        assert (409, None, "run_not_ended") == await refusal(live["id"])
        for wrong in ("resp_0", deleted["id"], completion["id"]):
            assert NOT_FOUND == await refusal(wrong)
        await call(rig, "POST", f"{PATH}/{live['id']}/cancel")
        assert 0 == rig.admission.num_live

    run(test)


def test_a_failed_response_is_shown_and_nothing_goes_on_from_it() -> None:
    """Whole it is 500; asked for later it says `failed`, why, and the text until then."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(100)
        response = await ok(rig, "POST", PATH, BODY | {"background": True})
        await until(lambda: not rig.store.unended)
        failed = await ok(rig, "GET", f"{PATH}/{response['id']}")

        assert ("failed", "incomplete") == (failed["status"], failed["output"][0]["status"])
        assert ("server_error", "engine_error") == (
            failed["error"]["code"],
            failed["error"]["type"],
        )
        body = BODY | {"previous_response_id": response["id"]}
        assert (400, "previous_response_id", None) == await error(rig, "POST", PATH, body)
        rig.engine.allow(100)
        assert (500, None, "engine_error") == await error(rig, "POST", PATH, BODY)

    run(test, faults=Faults(die_at_token=3, is_poisoned=True))


def test_in_the_background_the_answer_can_be_fetched_later() -> None:
    """The id comes at once and is in the store by then; nobody needs to wait for the text."""

    async def test(rig: Rig) -> None:
        begun = await ok(rig, "POST", PATH, BODY | {"background": True})
        assert ("in_progress", [], None) == (begun["status"], begun["output"], begun["usage"])
        assert await rig.store.run(begun["id"])
        rig.engine.allow(3)
        await turns()
        half = await ok(rig, "GET", f"{PATH}/{begun['id']}")
        assert ("in_progress", "in_progress") == (half["status"], half["output"][0]["status"])
        assert "abcde".startswith(_text(half))
        assert _text(half)
        rig.engine.allow(3)
        await until(lambda: not rig.store.unended)
        ended = await ok(rig, "GET", f"{PATH}/{begun['id']}")

        assert ("incomplete", "abcde", True) == (ended["status"], _text(ended), ended["background"])

    run(test)


def test_a_response_that_waits_for_a_reader_is_queued() -> None:
    """Nobody works on it; a stream that is taken up again makes it go on."""

    async def test(rig: Rig) -> None:
        leave = asyncio.Event()
        streaming = asyncio.create_task(
            call(rig, "POST", PATH, BODY | {"stream": True}, leave=leave)
        )
        rig.engine.allow(2)
        await until(lambda: rig.engine.stats().num_steps == 2)
        leave.set()
        await streaming
        await turns()
        (response_id,) = rig.store.unended
        assert "queued" == (await ok(rig, "GET", f"{PATH}/{response_id}"))["status"]
        rig.engine.allow(5)
        await call(rig, "GET", f"{PATH}/{response_id}", query={"stream": "true"})

        assert "abcde" == _text(await ok(rig, "GET", f"{PATH}/{response_id}"))

    run(test, grace_s=60.0)


def test_cancelling_ends_a_response_once() -> None:
    """The text until then stays; cancelling again, or after the end, changes nothing."""

    async def test(rig: Rig) -> None:
        begun = await ok(rig, "POST", PATH, BODY | {"background": True})
        rig.engine.allow(2)
        await until(lambda: rig.engine.stats().num_steps == 2)
        await turns()
        cancelled = await ok(rig, "POST", f"{PATH}/{begun['id']}/cancel")
        again = await ok(rig, "POST", f"{PATH}/{begun['id']}/cancel")
        assert ("cancelled", "ab") == (cancelled["status"], _text(cancelled))
        assert cancelled == again
        rig.engine.allow(8)
        whole = await ok(rig, "POST", PATH, BODY)

        after = await ok(rig, "POST", f"{PATH}/{whole['id']}/cancel")
        assert ("incomplete", "abcde") == (after["status"], _text(after))

    run(test)


def test_a_deleted_response_is_gone() -> None:
    """Also one that has not ended; its place is free at once."""

    async def test(rig: Rig) -> None:
        begun = await ok(rig, "POST", PATH, BODY | {"background": True})
        deleted = await ok(rig, "DELETE", f"{PATH}/{begun['id']}")
        assert {"id": begun["id"], "object": "response", "deleted": True} == deleted
        for method, path in (
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/cancel"),
            ("GET", "/input_items"),
        ):
            assert 404 == (await call(rig, method, f"{PATH}/{begun['id']}{path}")).status
        assert 0 == rig.admission.num_live

    run(test)


def test_the_messages_that_were_answered_can_be_listed() -> None:
    """Newest first unless told otherwise, in pages; earlier turns are among them."""

    async def test(rig: Rig) -> None:
        first = await _answer(rig, input="1", max_output_tokens=1)
        second = await _answer(rig, input="2", previous_response_id=first["id"])
        path = f"{PATH}/{second['id']}/input_items"
        newest = await ok(rig, "GET", path)
        page = await ok(rig, "GET", path, query={"order": "asc", "limit": 2})
        rest = await ok(rig, "GET", path, query={"order": "asc", "after": page["last_id"]})

        assert ["2", "a", "1"] == [item["content"][0]["text"] for item in newest["data"]]
        assert ["user", "assistant", "user"] == [item["role"] for item in newest["data"]]
        assert ["input_text", "output_text"] == [i["content"][0]["type"] for i in page["data"]]
        assert (True, False) == (page["has_more"], rest["has_more"])
        assert newest["data"][::-1] == page["data"] + rest["data"]
        assert newest["data"][0]["id"] == newest["first_id"] == rest["last_id"]

    run(test)


def test_a_named_request_is_answered_once() -> None:
    """The same Idempotency-Key gives the same response, also once what it went on from is gone."""

    async def test(rig: Rig) -> None:
        first = await _answer(rig)
        named = {"headers": {"Idempotency-Key": "k"}}
        body = BODY | {"previous_response_id": first["id"]}
        rig.engine.allow(5)
        second = await ok(rig, "POST", PATH, body, **named)
        await call(rig, "DELETE", f"{PATH}/{first['id']}")

        assert second == await ok(rig, "POST", PATH, body, **named)
        refused = await call(rig, "POST", PATH, BODY, **named)
        assert (409, "idempotency_key_reused") == (refused.status, refused.json["error"]["code"])
        assert "false" == refused.headers["x-should-retry"]

    run(test)


_MESSAGE = {"role": "user", "content": "a"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 1}, "input"),
        ({"input": [_MESSAGE, {"type": "function_call_output", "output": ""}]}, "input.1.type"),
        ({"input": [{"role": "tool", "content": "a"}]}, "input.0.role"),
        ({"input": [{"role": "user"}]}, "input.0.content"),
        (
            {"input": [{"role": "user", "content": "a", "tool_call_id": "c"}]},
            "input.0.tool_call_id",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input.0.content.0.type",
        ),
        ({"previous_response_id": "resp_1", "conversation": "conv_1"}, "previous_response_id"),
        ({"conversation": {"name": "a"}}, "conversation"),
        ({"conversation": {"id": None}}, "conversation"),
        ({"conversation": 1}, "conversation"),
        ({"n": 2}, "n"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"text": "a"}, "text"),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
        ({"reasoning": {"effort": "none"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        ({"reasoning": {"context": "all_turns"}}, "reasoning.context"),
        ({"background_options": {"completion_window": "8h"}}, "background_options"),
        ({"max_new_tokens": 2}, "max_new_tokens"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"truncation": "auto"}, "truncation"),
        ({"max_tool_calls": 1}, "max_tool_calls"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"moderation": {"model": "m"}}, "moderation"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
        ({"metadata": {"a": 1}}, "metadata.a"),
    ],
)
def test_what_is_not_served_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    """400 with the path of the field; nothing is generated."""

    async def test(rig: Rig) -> None:
        assert (400, param) == (await error(rig, "POST", PATH, BODY | fields))[:2]
        assert 0 == rig.admission.num_live

    run(test)


def test_fields_that_change_nothing_are_taken() -> None:
    """Neutral values of what is not served, harmless fields, and names that nobody knows."""

    async def test(rig: Rig) -> None:
        response = await _answer(
            rig,
            tools=[],
            tool_choice="auto",
            parallel_tool_calls=True,
            text={"format": {"type": "text"}, "verbosity": None},
            reasoning={"effort": None},
            include=[],
            truncation="disabled",
            top_logprobs=0,
            service_tier="auto",
            stream_options={"include_obfuscation": False},
            user="u",
            max_tool_calls=None,
            no_such_field=1,
        )
        assert "abcde" == _text(response)

    run(test)


@pytest.mark.parametrize("path", ["", "/input_items"])
def test_include_is_refused_when_a_response_is_fetched(path: str) -> None:
    """What would be left out is told, and an empty wish is none."""

    async def test(rig: Rig) -> None:
        url = f"{PATH}/{(await _answer(rig))['id']}{path}"
        for name in ("include", "include[]", "include[0]"):
            assert (400, "include") == (await error(rig, "GET", url, query={name: "x"}))[:2]
        assert 200 == (await call(rig, "GET", url, query={"include": ""})).status

    run(test)


@pytest.mark.parametrize("name", ["input_tokens", "compact"])
def test_what_is_not_served_is_not_there(name: str) -> None:
    """404, and not 405 as if it was a response that has no such method."""

    async def test(rig: Rig) -> None:
        for prefix in ("/v1", ""):
            answer = await call(rig, "POST", f"{prefix}/responses/{name}", BODY)
            assert (404, "not_found") == (answer.status, answer.json["error"]["code"])
            assert name in answer.json["error"]["message"]
        assert 405 == (await call(rig, "POST", f"{PATH}/resp_1", BODY)).status

    run(test)


def test_input_items_go_on_after_one_that_is_there() -> None:
    """Any other id is refused with the name of the parameter."""

    async def test(rig: Rig) -> None:
        path = f"{PATH}/{(await _answer(rig))['id']}/input_items"
        last_id = (await ok(rig, "GET", path))["last_id"]
        assert [] == (await ok(rig, "GET", path, query={"after": last_id}))["data"]
        assert (400, "after", None) == await error(rig, "GET", path, query={"after": "msg_0"})

    run(test)


def test_text_that_is_no_unicode_is_refused() -> None:
    """Half a character can neither be stored nor sent back."""

    async def test(rig: Rig) -> None:
        for fields in (
            {"input": "\ud800"},
            {"instructions": "\ud800"},
            {"metadata": {"a": "\ud800"}},
        ):
            assert 400 == (await call(rig, "POST", PATH, BODY | fields)).status
        assert not rig.store.unended

    run(test)
