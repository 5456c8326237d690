"""Requests that are seldom made, and harm nobody else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest
import structlog
from http_rig import call, error, ok
from rig import Letters, Rig, run

from streamwell.core.errors import InvalidRequest
from streamwell.core.types import ChatOptions, Message
from streamwell.server import deps
from streamwell.server.app import create_app
from streamwell.telemetry import configure_logging

pytestmark = pytest.mark.timeout(30)

CHAT = "/v1/chat/completions"
HELLO = {"role": "user", "content": "Hello"}
BROKEN = {"role": "user", "content": "\ud800"}
LONG = "y" * 5000
NAMED = {"idempotency-key": "k"}


def _chat(*messages: dict[str, str], **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"messages": messages, "max_tokens": 2} | fields


def test_a_message_that_is_not_read_is_checked_too() -> None:
    """It is kept with its run, in a commit that others' runs share: half a pair is refused."""

    async def test(rig: Rig) -> None:
        long = {"role": "user", "content": "y" * 5000}
        body = _chat(BROKEN, long, HELLO, store=True, truncate=8)
        assert (400, "messages.0.content", None) == await error(rig, "POST", CHAT, body)

    run(test)


@pytest.mark.parametrize(
    ("path", "num_answer"), [("/v1/completions", 16), ("/v1/chat/completions", 256)]
)
def test_a_truncated_prompt_leaves_room_for_an_answer(path: str, num_answer: int) -> None:
    """As much as the route generates by itself, where nothing is said of its length."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(num_answer)
        prompt = {"prompt": "y" * 5000} if "chat" not in path else _chat(HELLO | {"content": LONG})
        body = prompt | {"max_tokens": None, "truncate": 10**6}
        answer = await ok(rig, "POST", path, body)

        assert (4096 - num_answer, num_answer) == (
            answer["usage"]["prompt_tokens"],
            answer["usage"]["completion_tokens"],
        )

    run(test)


def test_what_an_assistant_thought_is_not_counted_before_the_template_is_asked() -> None:
    """It may leave that out, and then the conversation fits."""

    class Forgetting(Letters):
        def encode_chat(self, messages: Sequence[Message], options: ChatOptions) -> list[int]:
            told = [message for message in messages if message.role == "user"]
            return super().encode_chat(told, options)

    async def test(rig: Rig) -> None:
        rig.engine.allow(2)
        thought = {"role": "assistant", "content": "<think>" + "y" * 100_000 + "</think>Hi"}
        answer = await ok(rig, "POST", CHAT, _chat(HELLO, thought, HELLO))
        assert 10 == answer["usage"]["prompt_tokens"]

    run(test, make_encoder=Forgetting)


def test_what_a_client_names_is_written_out_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    """A terminal that shows the log obeys nobody."""
    configure_logging("info", as_json=False)
    structlog.get_logger().info("what", field="a\x1b[2J\x9b7m\x07", number=1, text="é 文")
    configure_logging("critical", as_json=True)

    logged = capsys.readouterr().err
    assert "x1b[2J" in logged
    assert "é 文" in logged
    assert not [char for char in logged.rstrip("\n") if not char.isprintable()]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"messages": [HELLO]}, "messages"),
        ("/v1/responses", {"input": "Hello"}, "input"),
        ("/v1/runs", {"messages": [HELLO]}, "messages"),
        ("/v1/runs", {"prompt": "Hello"}, "prompt"),
        ("/generate", {"prompt": "Hello"}, "prompt"),
    ],
)
def test_a_refused_prompt_is_named_as_its_route_names_it(
    path: str, body: dict[str, Any], param: str
) -> None:
    """Too long or not to the template's liking: the caller finds the field in what they sent."""

    class Refusing(Letters):
        def encode_chat(self, messages: Sequence[Message], options: ChatOptions) -> list[int]:
            raise InvalidRequest("roles must take turns", "messages")

    long = {
        name: [HELLO | {"content": "y" * 9000}] if name == "messages" else "y" * 9000
        for name in body
    }

    async def too_long(rig: Rig) -> None:
        assert (400, param, "context_length_exceeded") == await error(rig, "POST", path, long)

    async def refused(rig: Rig) -> None:
        assert (400, param, None) == await error(rig, "POST", path, body)

    run(too_long)
    run(refused, make_encoder=Refusing)


@pytest.mark.parametrize(
    "field", ["max_output_tokens", "previous_response_id", "instructions", "conversation"]
)
def test_a_field_of_another_route_is_refused(field: str) -> None:
    """Who moves between OpenAI's APIs is told, and not answered as if it had not been sent."""

    async def test(rig: Rig) -> None:
        body = {"prompt": "a", "max_tokens": 2, field: "conv_0"}
        assert (400, field) == (await error(rig, "POST", "/v1/completions", body))[:2]
        if field != "conversation":
            chat = _chat(HELLO, **{field: "x"})
            assert (400, field) == (await error(rig, "POST", CHAT, chat))[:2]

    run(test)


@pytest.mark.parametrize("path", ["/live", "/health", "/ready"])
def test_probes_may_ask_for_the_head_alone(path: str) -> None:
    """As `wget --spider` does."""

    async def test(rig: Rig) -> None:
        assert 200 == (await call(rig, "HEAD", path)).status

    run(test)


def test_what_json_can_spell_can_be_named() -> None:
    """With an `Idempotency-Key`, too, a large integer is ignored and half a pair refused."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(100)
        body = _chat(BROKEN)
        refusal = await error(rig, "POST", CHAT, body, headers=NAMED)
        assert (400, "messages.0.content", None) == refusal
        assert await ok(rig, "POST", CHAT, _chat(HELLO, x=1 << 64), headers=NAMED)

    run(test)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "not valid JSON"),
        (b'{"prompt": "\xff"}', "not valid UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"n": ' + b"1" * 5000 + b"}", "a number in the body is too long"),
    ],
)
def test_a_body_that_cannot_be_read_is_told_why(body: bytes, reason: str) -> None:
    """400, whatever is wrong with it."""

    async def test(rig: Rig) -> None:
        answer = await call(rig, "POST", "/v1/completions", body)

        assert 400 == answer.status
        assert reason in answer.json["error"]["message"]

    run(test)


def test_what_cannot_be_named_is_refused() -> None:
    """A field that nobody knows can still be too deep, or its name no text, for a fingerprint."""

    async def test(rig: Rig) -> None:
        deep: list[Any] = []
        for _ in range(300):
            deep = [deep]
        for odd in (deep, {"\ud800": 1}):
            assert (400, None, None) == await error(
                rig, "POST", CHAT, _chat(HELLO, x=odd), headers=NAMED
            )

    run(test)


def test_a_page_of_another_site_begins_no_conversation() -> None:
    """It can send an empty body without asking first."""

    async def test(rig: Rig) -> None:
        foreign = {"sec-fetch-site": "cross-site"}
        path = "/v1/conversations"
        assert (403, None, "not_allowed") == await error(rig, "POST", path, headers=foreign)
        assert [] == (await ok(rig, "GET", path))["data"]
        assert await ok(rig, "POST", path)

    run(test)


def test_pages_of_other_origins_may_send_any_header() -> None:
    """OpenAI's client sends some of its own, which a browser asks about first."""

    async def test(rig: Rig) -> None:
        origin = "http://127.0.0.1:9000"
        rig.app = create_app(rig.services, max_body_bytes=1 << 20, cors_origins=(origin,))
        asked = "authorization,content-type,x-api-key,x-stainless-lang"
        headers = {
            "origin": origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": asked,
        }
        answer = await call(rig, "OPTIONS", CHAT, headers=headers)
        assert 200 == answer.status
        assert asked == answer.headers["access-control-allow-headers"]

    run(test)


def test_long_names_of_unknown_fields_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand names are, so each of them has to be short: the rest counts for nothing."""
    log = Mock()
    monkeypatch.setattr(deps, "log", log)
    deps.UnknownFields().note(["x" * 81, "x" * 1_000_000])
    assert ["x" * 80] == [call.kwargs["field"] for call in log.info.mock_calls]


def test_a_long_name_in_a_field_is_not_sent_back_whole() -> None:
    """A body of megabytes is no more than some hundred characters of its refusal."""

    async def test(rig: Rig) -> None:
        answer = await call(rig, "POST", CHAT, _chat(HELLO, metadata={"k" * 100_000: "v"}))
        told = answer.json["error"]
        assert (400, "metadata.kkk") == (answer.status, told["param"][:12])
        assert len(told["param"]) <= 200
        assert len(told["message"]) < 1000

    run(test)
