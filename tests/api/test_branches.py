"""Conversations that branch, and chat completions within them."""

from __future__ import annotations

from typing import Any

import pytest
from http_rig import call, error, ok
from rig import Rig, run

from streamwell.core.conversation import ConversationItem
from streamwell.core.errors import InvalidRequest
from streamwell.core.messages import AnswerPart, Message, PartKind, ToolCall
from streamwell.core.types import EventKind, RunEvent
from streamwell.service.paths import answer_of, path_to, relinked

pytestmark = pytest.mark.timeout(30)

PATH = "/v1/conversations"
CHAT = "/v1/chat/completions"


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def _create(rig: Rig) -> str:
    conversation_id: str = (await ok(rig, "POST", PATH))["id"]
    return conversation_id


async def _chat(rig: Rig, conversation: str, *texts: str, **fields: object) -> dict[str, Any]:
    rig.engine.allow(2)
    body = {"messages": [_user(text) for text in texts], "conversation": conversation}
    return await ok(rig, "POST", CHAT, body | {"max_tokens": 2} | fields)


async def _items(rig: Rig, conversation: str) -> list[dict[str, Any]]:
    listed = await ok(rig, "GET", f"{PATH}/{conversation}/items", query={"order": "asc"})
    items: list[dict[str, Any]] = listed["data"]
    return items


async def _prompt(rig: Rig, run_id: str) -> str:
    spec = await rig.store.run(run_id)
    assert spec is not None
    return "".join(map(chr, spec.prompts[0]))


def test_a_chat_completion_goes_on_in_a_conversation() -> None:
    """Its messages are what is new; they and the answer become items, each after the other."""

    async def test(rig: Rig) -> None:
        conversation = await _create(rig)
        first = await _chat(rig, conversation, "1")
        second = await _chat(rig, conversation, "2")
        items = await _items(rig, conversation)

        assert ("1", "1ab2") == (await _prompt(rig, first["id"]), await _prompt(rig, second["id"]))
        assert ["1", "ab", "2", "ab"] == [item["content"][0]["text"] for item in items]
        assert ["root", *(item["id"] for item in items[:3])] == [
            item["previous_item_id"] for item in items
        ]
        answer = items[1]
        assert (first["id"], "length", "incomplete", None) == (
            answer["run_id"],
            answer["finish_reason"],
            answer["status"],
            answer["error"],
        )
        assert first["usage"] == answer["usage"]

    run(test)


def test_a_conversation_branches_at_any_item() -> None:
    """Another answer, another question, another beginning: each sees its own way only."""

    async def test(rig: Rig) -> None:
        conversation = await _create(rig)
        await _chat(rig, conversation, "1")
        await _chat(rig, conversation, "2")
        question, answer = (item["id"] for item in (await _items(rig, conversation))[:2])
        again = await _chat(rig, conversation, previous_item_id=question)
        edited = await _chat(rig, conversation, "3", previous_item_id=answer)
        anew = await _chat(rig, conversation, "4", previous_item_id="root")
        last = await _chat(rig, conversation, "5")

        prompts = [await _prompt(rig, entry["id"]) for entry in (again, edited, anew, last)]
        assert ["1", "1ab3", "4", "4ab5"] == prompts
        previous = [item["previous_item_id"] for item in await _items(rig, conversation)]
        assert (question, answer, "root") == (previous[4], previous[5], previous[7])

    run(test)


def test_messages_are_added_after_an_item() -> None:
    """The first of them follows it, the others follow each other."""

    async def test(rig: Rig) -> None:
        conversation = await _create(rig)
        path = f"{PATH}/{conversation}/items"
        items = {"items": [_user("1"), _user("2")]}
        first = (await ok(rig, "POST", path, items))["data"]
        body = items | {"previous_item_id": first[0]["id"]}
        second = (await ok(rig, "POST", path, body))["data"]

        assert ["root", first[0]["id"]] == [item["previous_item_id"] for item in first]
        expected = [first[0]["id"], second[0]["id"]]
        assert expected == [item["previous_item_id"] for item in second]

    run(test)


def test_a_system_message_is_for_one_answer() -> None:
    """It comes before all that was said, and is no item."""

    async def test(rig: Rig) -> None:
        conversation = await _create(rig)
        await _chat(rig, conversation, "1")
        messages = [{"role": "system", "content": "S"}, _user("2")]
        answer = await _chat(rig, conversation, messages=messages)

        assert "S1ab2" == await _prompt(rig, answer["id"])
        roles = [item["role"] for item in await _items(rig, conversation)]
        assert ["user", "assistant"] * 2 == roles

    run(test)


def test_a_repeated_request_adds_nothing() -> None:
    """With the same Idempotency-Key it gets the same run, and the conversation grows once."""

    async def test(rig: Rig) -> None:
        conversation = await _create(rig)
        rig.engine.allow(2)
        body = {"messages": [_user("1")], "conversation": conversation, "max_tokens": 2}
        headers = {"Idempotency-Key": "k"}
        answers = [await ok(rig, "POST", CHAT, body, headers=headers) for _ in range(2)]

        assert answers[0] == answers[1]
        assert 2 == len(await _items(rig, conversation))

    run(test)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"conversation": None}, "messages"),
        ({"conversation": None, "previous_item_id": "root"}, "messages"),
        ({"n": 2}, "n"),
        ({"previous_item_id": "msg_unknown"}, "previous_item_id"),
        ({"previous_item_id": 1}, "previous_item_id"),
        ({"conversation": 1}, "conversation"),
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, Any], param: str) -> None:
    """With the name of the field; the conversation stays as it is."""

    async def test(rig: Rig) -> None:
        conversation = await _create(rig)
        body = {"messages": [], "conversation": conversation} | fields
        assert (400, param, None) == await error(rig, "POST", CHAT, body)
        assert [] == await _items(rig, conversation)

    run(test)


@pytest.mark.parametrize(
    ("path", "body"), [(CHAT, {"messages": [_user("1")]}), ("/v1/responses", {"input": "1"})]
)
def test_an_item_needs_its_conversation(path: str, body: dict[str, Any]) -> None:
    """An item alone says nothing."""

    async def test(rig: Rig) -> None:
        sent = body | {"previous_item_id": "root"}
        assert (400, "previous_item_id", None) == await error(rig, "POST", path, sent)

    run(test)


def test_conversations_of_others_are_not_there() -> None:
    """Another key's conversation gets 404, and no item."""

    async def test(rig: Rig) -> None:
        mine, other = ({"authorization": f"Bearer {key}"} for key in ("one", "two"))
        conversation = (await ok(rig, "POST", PATH, headers=mine))["id"]
        body = {"messages": [_user("1")], "conversation": conversation}
        answer = await call(rig, "POST", CHAT, body, headers=other)
        assert (404, "conversation_not_found") == (answer.status, answer.json["error"]["code"])
        listed = await ok(rig, "GET", f"{PATH}/{conversation}/items", headers=mine)
        assert [] == listed["data"]

    run(test, keys=("one", "two"))


def _item(item_id: str, previous_id: str | None = None) -> ConversationItem:
    message = Message("user", item_id)
    return ConversationItem(item_id=item_id, message=message, previous_id=previous_id)


@pytest.mark.parametrize(
    ("last_id", "path"),
    [(None, "fg"), ("", ""), ("b", "ab"), ("d", "acd"), ("e", "e"), ("g", "fg")],
)
def test_paths(last_id: str | None, path: str) -> None:
    """Each item follows the one that it names; without a name the one before it."""
    items = [_item("a", ""), _item("b"), _item("c", "a"), _item("d"), _item("e", "gone")]
    items += [_item("f", "h"), _item("g")]  # `h` is not there, and nothing goes round in circles

    assert path == "".join(item.item_id for item in path_to(items, last_id))


@pytest.mark.parametrize(
    ("items", "deleted", "expected"),
    [
        ([("a", ""), ("b", "a"), ("c", "b"), ("d", "b")], "b", {"c": "a", "d": "a"}),
        ([("a", ""), ("b", "a"), ("c", "")], "a", {"b": ""}),
        ([("a", None), ("b", None), ("c", None), ("d", None)], "b", {"c": "a"}),
        ([("a", None), ("b", None)], "a", {"b": ""}),
        ([("a", ""), ("b", "a")], "b", {}),
        ([("a", "")], "x", {}),
    ],
)
def test_what_follows_a_deleted_item(
    items: list[tuple[str, str | None]], deleted: str, expected: dict[str, str]
) -> None:
    """It comes after the one before, on each branch; all others are left as they are."""
    changed = relinked([_item(*item) for item in items], deleted)
    assert expected == {item.item_id: item.previous_id for item in changed}


def test_an_item_in_the_middle_can_be_deleted() -> None:
    """The next prompt has all but that, whether it was a question or an answer."""

    async def test(rig: Rig) -> None:
        conversation = await _create(rig)
        for text in "123":
            await _chat(rig, conversation, text)
        ids = [item["id"] for item in await _items(rig, conversation)]
        for item_id in ids[2:4]:
            await ok(rig, "DELETE", f"{PATH}/{conversation}/items/{item_id}")
        last = await _chat(rig, conversation, "4")

        assert "1ab3ab4" == await _prompt(rig, last["id"])
        assert ids[1] == (await _items(rig, conversation))[2]["previous_item_id"]

    run(test)


def test_a_path_to_nowhere_is_refused() -> None:
    """What is not in the conversation cannot be gone on from."""
    with pytest.raises(InvalidRequest, match="'x'"):
        path_to([_item("a")], "x")


def test_items_that_follow_each_other_end() -> None:
    """A circle, which nobody can make through the API, does not hold the server."""
    assert "ab" == "".join(
        item.item_id for item in path_to([_item("a", "b"), _item("b", "a")], "b")
    )


def test_an_answer_is_told_without_its_thoughts() -> None:
    """Content and calls; a call has the id that its client saw."""
    parts = (
        AnswerPart(PartKind.REASONING, "hm"),
        AnswerPart(PartKind.CONTENT, "let me see"),
        AnswerPart(PartKind.TOOL_CALL, "{}", "look", 0),
    )
    events = [
        RunEvent(run_id="r", seq=1, kind=EventKind.DELTA, text="<raw>", parts=parts),
        RunEvent(run_id="r", seq=2, kind=EventKind.DELTA, text="!"),
    ]

    answer = answer_of("r", events)

    assert "let me see!" == answer.content
    assert [("look", "{}")] == [(call.name, call.arguments) for call in answer.tool_calls]
    assert all(isinstance(call, ToolCall) and call.call_id for call in answer.tool_calls)
