"""The WebSocket `/`: bare text, a conversation that is kept, and answers that go on after a cut."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from http_rig import ok
from rig import Answer, Letters, Rig, post, run, turns, until
from socket_rig import Client, connected

from streamwell.backends.scripted import Faults
from streamwell.core.messages import ChatOptions, Message

pytestmark = pytest.mark.timeout(30)

FINISHED = "<<Response Finished>>"
THREE = "max_tokens=3"
ANSWER = ["a", "b", "c"]


async def _until_finished(client: Client, num: int = 1) -> list[str]:
    await until(lambda: client.texts.count(FINISHED) >= num)
    return client.texts


def _run_of(client: Client) -> str:
    return client.texts[0].removeprefix("<<Run ").removesuffix(">>")


async def _prompt_of(rig: Rig, run_id: str) -> str:
    return "".join(map(chr, (await rig.runs.find(run_id, "")).prompts[0]))


def test_every_answer_is_text_and_a_last_frame() -> None:
    """A frame for each piece, then the last one, and the same again for the next prompt."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(6)
        async with connected(rig, path="/", query=THREE) as client:
            client.say_text("one")
            assert [*ANSWER, FINISHED] == await _until_finished(client)
            client.say_text("two")
            assert [*ANSWER, FINISHED] * 2 == await _until_finished(client, 2)

    run(test)


def test_a_prompt_comes_after_all_that_was_said() -> None:
    """The model gets the conversation: each prompt and each answer, in order."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(9)
        async with connected(rig, path="/", query=THREE) as client:
            for num, prompt in enumerate(("one", "two", "three"), 1):
                client.say_text(prompt)
                await _until_finished(client, num)
        runs = [request_id.partition("/")[0] for request_id in rig.engine.request_ids]
        assert ["one", "oneabctwo", "oneabctwoabcthree"] == [
            await _prompt_of(rig, run_id) for run_id in runs
        ]

    run(test)


def test_without_a_chat_template_a_conversation_is_one_text() -> None:
    """What was said is put together as it is."""

    class Bare(Letters):
        has_chat_template = False

        def encode_chat(self, messages: Sequence[Message], options: ChatOptions) -> list[int]:
            raise AssertionError

    async def test(rig: Rig) -> None:
        rig.engine.allow(6)
        async with connected(rig, path="/", query=THREE) as client:
            client.say_text("Space")
            await _until_finished(client)
            client.say_text(" the")
            await _until_finished(client, 2)
        run_id = rig.engine.request_ids[-1].partition("/")[0]
        assert "Spaceabc the" == await _prompt_of(rig, run_id)

    run(test, make_encoder=Bare)


def test_prompts_that_come_early_wait() -> None:
    """They are answered one after the other, each after the answer before it."""

    async def test(rig: Rig) -> None:
        async with connected(rig, path="/", query=THREE) as client:
            for prompt in ("one", "two", "three"):
                client.say_text(prompt)
            await until(lambda: rig.engine.num_open)
            await turns()
            assert 1 == rig.engine.num_open
            rig.engine.allow(9)
            assert [*ANSWER, FINISHED] * 3 == await _until_finished(client, 3)
        assert "oneabctwoabcthree" == await _prompt_of(
            rig, rig.engine.request_ids[-1].partition("/")[0]
        )

    run(test)


@pytest.mark.parametrize("num_seen", [0, 1, 2, 3])
def test_an_answer_goes_on_after_a_cut(num_seen: int) -> None:
    """After so many text frames the others come, each once, and then the conversation goes on."""

    async def test(rig: Rig) -> None:
        async with connected(rig, path="/", query=f"{THREE}&ids=true") as client:
            client.say_text("one")
            rig.engine.allow(num_seen)
            await until(lambda: len(client.texts) >= 1 + num_seen)
        seen = client.texts[1 : 1 + num_seen]
        run_id = _run_of(client)
        rig.engine.allow(9)
        query = f"{THREE}&run={run_id}&after={num_seen}"
        async with connected(rig, path="/", query=query) as client:
            assert [*ANSWER, FINISHED] == seen + await _until_finished(client)
            client.say_text("two")
            await _until_finished(client, 2)
        assert 2 == len({request_id.partition("/")[0] for request_id in rig.engine.request_ids})
        last = rig.engine.request_ids[-1].partition("/")[0]
        assert "oneabctwo" == await _prompt_of(rig, last)

    run(test, grace_s=60)


def test_who_leaves_pauses_the_answer() -> None:
    """The engine stops at once; after the grace time the run is cancelled."""

    async def test(rig: Rig) -> None:
        async with connected(rig, path="/", query="ids=true") as client:
            client.say_text("one")
            rig.engine.allow(2)
            await until(lambda: len(client.texts) == 3)
        run_id = _run_of(client)
        await until(lambda: not rig.runs.log.is_live(run_id))
        shown = await ok(rig, "GET", f"/v1/runs/{run_id}")
        assert ("cancelled", "ab") == (shown["status"], shown["choices"][0]["text"])

    run(test, grace_s=0.05)


def test_what_is_wrong_with_a_prompt_is_told() -> None:
    """An error body in the place of the answer; the connection and the conversation go on."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(9)
        async with connected(rig, path="/", query=THREE) as client:
            client.say_text("one")
            await _until_finished(client)
            for num, prompt in enumerate(("", "x" * 5000), 2):
                client.say_text(prompt)
                *_, told, last = await _until_finished(client, num)
                assert "invalid_request_error" == json.loads(told)["error"]["type"]
                assert FINISHED == last
            client.say_text("two")
            await _until_finished(client, 4)
        last_run = rig.engine.request_ids[-1].partition("/")[0]
        assert "oneabctwo" == await _prompt_of(rig, last_run)

    run(test)


def test_an_answer_that_fails_is_told_and_forgotten() -> None:
    """The error comes after the text so far, and the next prompt does not build on it."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(9)
        async with connected(rig, path="/", query="max_tokens=2") as client:
            client.say_text("one")
            *_, told, last = await _until_finished(client)
            assert ["a", FINISHED] == [client.texts[0], last]
            assert "engine_error" == json.loads(told)["error"]["code"]
            client.say_text("two")
            await _until_finished(client, 2)
        last_run = rig.engine.request_ids[-1].partition("/")[0]
        assert "two" == await _prompt_of(rig, last_run)

    run(test, faults=Faults(fail_at_token=1))


WRONG = [
    ("max_tokens=0", "max_tokens", 1008),
    ("after=-1", "after", 1008),
    ("after=3", "after", 1008),
    ("run=../x", "run", 1008),
    ("n=2", "n", 1008),
    ("preset=none", "preset", 1008),
    ("preset=few-shot", "preset", 1008),
    ("logprobs=5", "logprobs", 1008),
    ("run=resp_none", None, None),
]


@pytest.mark.parametrize(("query", "param", "code"), WRONG)
def test_what_is_wrong_with_the_query_is_told(
    query: str, param: str | None, code: int | None
) -> None:
    """Before anything else; a connection that could never work is closed."""

    async def test(rig: Rig) -> None:
        async with connected(rig, path="/", query=query) as client:
            await until(lambda: bool(client.texts))
            assert param == json.loads(client.texts[0])["error"]["param"]
            if code is not None:
                assert code == await client.until_closed()

    run(test)


def test_only_a_place_in_an_answer_can_be_gone_on_from() -> None:
    """A frame that was never sent, and a run of another kind, are refused."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(9)
        async with connected(rig, path="/", query=f"{THREE}&ids=true") as client:
            client.say_text("one")
            await _until_finished(client)
        other: Answer = await post(rig, "/v1/runs", {"prompt": "a", "max_tokens": 1})
        for query, param in (
            (f"run={_run_of(client)}&after=99", "after"),
            (f"run={other.json['id']}", None),
        ):
            async with connected(rig, path="/", query=query) as again:
                await _until_finished(again)
                assert param == json.loads(again.texts[0])["error"]["param"]

    run(test)


def test_a_drain_closes_and_nothing_is_taken_for_an_end() -> None:
    """1012 without the last frame: the rest of the answer comes from the next server."""

    async def test(rig: Rig) -> None:
        async with connected(rig, path="/", query=f"{THREE}&ids=true") as client:
            client.say_text("one")
            rig.engine.allow(1)
            await until(lambda: len(client.texts) == 2)
            rig.store.is_durable = True
            await rig.runs.drain(0)
            assert 1012 == await client.until_closed()
            assert FINISHED not in client.texts

    run(test, grace_s=60)


def test_what_is_no_text_ends_the_connection() -> None:
    """1003, also within an answer, whose run is paused then."""

    async def test(rig: Rig) -> None:
        async with connected(rig, path="/", query="ids=true") as client:
            client.say_text("one")
            rig.engine.allow(2)
            await until(lambda: len(client.texts) == 3)
            rig.engine.allow(1)
            client.say_bytes(b"\x00")
            assert 1003 == await client.until_closed()
        await until(lambda: rig.runs.is_paused(_run_of(client)))

    run(test, grace_s=60)


def test_who_may_come_in() -> None:
    """A key in the handshake or the first message; no page of another site; not another's run."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(9)
        async with connected(rig, path="/", authorization="Bearer wrong") as client:
            assert 401 == client.status
        async with connected(rig, path="/", origin="http://evil.example") as client:
            assert 403 == client.status
        async with connected(rig, path="/") as client:
            client.say_text("Hello")
            assert 4401 == await client.until_closed()
        query = f"{THREE}&ids=true"
        async with connected(rig, path="/", query=query, authorization="Bearer sk-one") as client:
            client.say_text("one")
            await _until_finished(client)
        query = f"run={_run_of(client)}"
        async with connected(rig, path="/", query=query, x_api_key="sk-two") as client:
            await _until_finished(client)
            assert "run_not_found" == json.loads(client.texts[0])["error"]["code"]
        async with connected(rig, path="/", query=query) as client:
            client.say(type="auth", key="sk-one")
            assert [*ANSWER, FINISHED] == await _until_finished(client)

    run(test, keys=("sk-one", "sk-two"))
