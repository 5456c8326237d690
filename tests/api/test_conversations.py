"""`/v1/conversations` without sockets, and responses within them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from http_rig import call, error, ok
from rig import Rig, run, turns, until

from streamwell.core.conversation import ConversationItem
from streamwell.core.errors import StoreFailed
from streamwell.core.types import Message
from streamwell.service import acceptance, conversations
from streamwell.service.conversations import MAX_ITEMS

pytestmark = pytest.mark.timeout(30)

PATH = "/v1/conversations"
RESPONSES = "/v1/responses"
BODY: dict[str, Any] = {"input": "1", "max_output_tokens": 2}
OLDEST_FIRST = {"order": "asc"}


def _user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


async def _create(rig: Rig, *texts: str) -> str:
    items = [_user(text) for text in texts]
    conversation_id: str = (await ok(rig, "POST", PATH, {"items": items}))["id"]
    return conversation_id


async def _items(rig: Rig, conversation_id: str) -> list[dict[str, Any]]:
    """All items, oldest first."""
    listed = await ok(rig, "GET", f"{PATH}/{conversation_id}/items", query=OLDEST_FIRST)
    items: list[dict[str, Any]] = listed["data"]
    return items


async def _texts(rig: Rig, conversation_id: str) -> list[str]:
    return [item["content"][0]["text"] for item in await _items(rig, conversation_id)]


async def _answer(rig: Rig, conversation: object, **fields: object) -> dict[str, Any]:
    body = BODY | {"conversation": conversation} | fields
    rig.engine.allow(body["max_output_tokens"])
    return await ok(rig, "POST", RESPONSES, body)


async def _prompt(rig: Rig, response_id: str) -> str:
    spec = await rig.store.run(response_id)
    assert spec is not None
    return "".join(map(chr, spec.prompts[0]))


@pytest.mark.parametrize("path", [PATH, "/conversations"])
@pytest.mark.parametrize("body", [None, {}, {"items": None, "metadata": None}])
def test_a_conversation_may_begin_empty(path: str, body: object) -> None:
    """Without a body, or with nothing in it."""

    async def test(rig: Rig) -> None:
        conversation = await ok(rig, "POST", path, body)

        assert isinstance(conversation.pop("created_at"), int)
        assert conversation.pop("id").startswith("conv_")
        assert {"object": "conversation", "metadata": {}} == conversation

    run(test)


def test_a_conversation_is_kept_changed_and_deleted() -> None:
    """Metadata is replaced as a whole; a deleted conversation is gone with its items."""

    async def test(rig: Rig) -> None:
        body = {"items": [_user("a")], "metadata": {"a": "1", "b": "2"}}
        created = await ok(rig, "POST", PATH, body)
        path = f"{PATH}/{created['id']}"
        assert created == await ok(rig, "GET", path)
        updated = await ok(rig, "POST", path, {"metadata": {"c": "3"}})
        assert created | {"metadata": {"c": "3"}} == updated == await ok(rig, "GET", path)
        deleted = await ok(rig, "DELETE", path)

        assert {"id": created["id"], "object": "conversation.deleted", "deleted": True} == deleted
        gone = (404, None, "conversation_not_found")
        assert [gone] * 4 == [
            await error(rig, "GET", path),
            await error(rig, "DELETE", path),
            await error(rig, "GET", f"{path}/items"),
            await error(rig, "POST", RESPONSES, BODY | {"conversation": created["id"]}),
        ]

    run(test)


def test_conversations_are_listed_in_pages() -> None:
    """Newest first unless told otherwise; following `last_id` gives each exactly once."""

    async def test(rig: Rig) -> None:
        created = {await _create(rig) for _ in range(5)}
        everything = await ok(rig, "GET", PATH)
        listed: list[str] = []
        page: dict[str, Any] = {"has_more": True, "last_id": ""}
        while page["has_more"]:
            query = {"limit": 2, "after": page["last_id"], "order": "asc"}
            page = await ok(rig, "GET", PATH, query=query)
            listed += (entry["id"] for entry in page["data"])

        assert created == set(listed)
        assert listed[::-1] == [entry["id"] for entry in everything["data"]]
        assert (False, listed[-1]) == (everything["has_more"], everything["first_id"])

    run(test)


def test_items_are_messages_in_their_order() -> None:
    """Added, listed, found, deleted; the assistant's are output, all others input."""

    async def test(rig: Rig) -> None:
        conversation_id = await _create(rig, "a")
        path = f"{PATH}/{conversation_id}/items"
        new = [{"role": "assistant", "content": "b"}, {"role": "developer", "content": "c"}]
        added = await ok(rig, "POST", path, {"items": new})
        items = await _items(rig, conversation_id)

        assert ["a", "b", "c"] == await _texts(rig, conversation_id)
        assert items[1:] == added["data"]
        assert ["input_text", "output_text", "input_text"] == [
            item["content"][0]["type"] for item in items
        ]
        assert {"completed"} == {item["status"] for item in items}
        assert items[::-1] == (await ok(rig, "GET", path))["data"]
        assert items[1] == await ok(rig, "GET", f"{path}/{items[1]['id']}")
        left = await ok(rig, "DELETE", f"{path}/{items[1]['id']}")
        assert (conversation_id, "conversation") == (left["id"], left["object"])
        assert ["a", "c"] == await _texts(rig, conversation_id)
        gone = (404, None, "item_not_found")
        assert gone == await error(rig, "GET", f"{path}/{items[1]['id']}")
        assert gone == await error(rig, "DELETE", f"{path}/{items[1]['id']}")

    run(test)


def test_a_response_goes_on_in_its_conversation() -> None:
    """All items are its prompt; its input and its answer become items, under their own ids."""

    async def test(rig: Rig) -> None:
        conversation_id = await _create(rig, "x", "y")
        first = await _answer(rig, conversation_id, instructions="I")
        second = await _answer(rig, {"id": conversation_id}, input="2")
        items = await _items(rig, conversation_id)

        assert ["x", "y", "1", "ab", "2", "ab"] == await _texts(rig, conversation_id)
        assert "Ixy1" == await _prompt(rig, first["id"])
        assert "xy1ab2" == await _prompt(rig, second["id"])
        assert {"id": conversation_id} == first["conversation"] == second["conversation"]
        assert not first["background"]
        assert first["output"][0].items() <= items[3].items()
        inputs = await ok(rig, "GET", f"{RESPONSES}/{second['id']}/input_items", query=OLDEST_FIRST)
        assert inputs["data"][-1].items() <= items[4].items()

    run(test)


def test_what_was_deleted_is_not_in_the_next_prompt() -> None:
    """An item that is gone is gone; an answer whose response was deleted has lost its text."""

    async def test(rig: Rig) -> None:
        conversation_id = await _create(rig, "x")
        first = await _answer(rig, conversation_id)
        item_id = (await _items(rig, conversation_id))[0]["id"]
        await ok(rig, "DELETE", f"{PATH}/{conversation_id}/items/{item_id}")
        await ok(rig, "DELETE", f"{RESPONSES}/{first['id']}")
        answer = (await _items(rig, conversation_id))[-1]
        second = await _answer(rig, conversation_id, input="2")

        assert ("incomplete", "") == (answer["status"], answer["content"][0]["text"])
        assert "12" == await _prompt(rig, second["id"])

    run(test)


def test_an_answer_in_a_conversation_is_finished_without_readers() -> None:
    """The client leaves; the item shows the text so far, and at the end all of it."""

    async def test(rig: Rig) -> None:
        conversation_id = await _create(rig)
        leave = asyncio.Event()
        body = BODY | {"conversation": conversation_id, "stream": True}
        streaming = asyncio.create_task(call(rig, "POST", RESPONSES, body, leave=leave))
        rig.engine.allow(1)
        await until(lambda: rig.engine.stats().num_steps == 1)
        await turns()
        leave.set()
        await streaming
        item = (await _items(rig, conversation_id))[-1]
        assert ("in_progress", "a") == (item["status"], item["content"][0]["text"])
        rig.engine.allow(1)
        await until(lambda: not rig.store.unended)

        item = (await _items(rig, conversation_id))[-1]
        assert ("incomplete", "ab") == (item["status"], item["content"][0]["text"])

    run(test)


def test_an_item_tells_which_model_answered() -> None:
    """Who asks may leave it to the server; once the run is deleted nobody knows any more."""

    async def test(rig: Rig) -> None:
        conversation_id = await _create(rig)
        response = await _answer(rig, conversation_id)
        question, answer = await _items(rig, conversation_id)
        assert ("model" in question, response["model"]) == (False, answer["model"])

        await ok(rig, "DELETE", f"{RESPONSES}/{response['id']}")
        assert (await _items(rig, conversation_id))[-1]["model"] is None

    run(test)


def test_one_answer_at_a_time() -> None:
    """Of two requests at once one is answered; the other gets 409 and leaves nothing behind."""

    async def test(rig: Rig) -> None:
        conversation_id = await _create(rig)
        body = BODY | {"conversation": conversation_id, "background": True}
        answers = await asyncio.gather(*(call(rig, "POST", RESPONSES, body) for _ in range(2)))

        assert [200, 409] == sorted(answer.status for answer in answers)
        refused = next(answer for answer in answers if answer.status == 409)
        assert "run_not_ended" == refused.json["error"]["code"]
        assert 2 == len(await _items(rig, conversation_id))
        rig.engine.allow(2)
        await until(lambda: not rig.store.unended)

    run(test)


def test_a_named_request_adds_its_items_once() -> None:
    """The same Idempotency-Key: the same response, while it runs and later, and no more items."""

    async def test(rig: Rig) -> None:
        conversation_id = await _create(rig, "x")
        named = {"headers": {"Idempotency-Key": "k"}}
        body = BODY | {"conversation": conversation_id, "background": True}
        begun = await ok(rig, "POST", RESPONSES, body, **named)
        again = await ok(rig, "POST", RESPONSES, body, **named)
        rig.engine.allow(2)
        await until(lambda: not rig.store.unended)
        later = await ok(rig, "POST", RESPONSES, body, **named)

        assert 1 == len({response["id"] for response in (begun, again, later)})
        assert ["x", "1", "ab"] == await _texts(rig, conversation_id)

    run(test)


def test_a_request_that_is_refused_leaves_the_conversation_as_it_was() -> None:
    """Nothing is added before the run is accepted."""

    async def test(rig: Rig) -> None:
        conversation_id = await _create(rig, "x")
        body = {"conversation": conversation_id}

        assert 400 == (await call(rig, "POST", RESPONSES, body | {"input": "\u20ac"})).status
        assert 404 == (await call(rig, "POST", RESPONSES, BODY | body | {"model": "no"})).status
        assert ["x"] == await _texts(rig, conversation_id)

    run(test)


def test_roles_take_turns_though_an_answer_has_no_words() -> None:
    """One that was cancelled before its first word is told: many templates want one there."""

    async def test(rig: Rig) -> None:
        conversation_id = await _create(rig)
        body = BODY | {"conversation": conversation_id, "background": True}
        wordless = await ok(rig, "POST", RESPONSES, body)
        await ok(rig, "POST", f"{RESPONSES}/{wordless['id']}/cancel")
        await until(lambda: not rig.store.unended)
        response = await _answer(rig, conversation_id, input="2")

        spec = await rig.store.run(response["id"])
        assert spec is not None
        told = [(message.role, message.content) for message in spec.terms.messages]
        assert [("user", "1"), ("assistant", ""), ("user", "2")] == told

    run(test)


@pytest.mark.parametrize("path", [RESPONSES, "/v1/chat/completions"])
def test_a_conversation_keeps_its_answers(path: str) -> None:
    """An answer that is not to be stored would go out of it after a while, unnoticed."""

    async def test(rig: Rig) -> None:
        prompt: object = "1" if path == RESPONSES else [{"role": "user", "content": "1"}]
        name = "input" if path == RESPONSES else "messages"
        body = {name: prompt, "conversation": await _create(rig), "store": False}

        assert (400, "store") == (await error(rig, "POST", path, body))[:2]

    run(test)


def test_ids_of_conversations_sort_by_time() -> None:
    """To the millisecond, so that a list of those of one second has an order that stays."""

    async def test(rig: Rig) -> None:
        times = [(await _create(rig)).removeprefix("conv_")[:12] for _ in range(5)]

        assert sorted(times) == times

    run(test)


def test_items_alone_can_be_answered() -> None:
    """With a conversation no input is needed; an empty one has nothing to answer."""

    async def test(rig: Rig) -> None:
        conversation_id = await _create(rig, "x")
        response = await _answer(rig, conversation_id, input=None)
        empty = BODY | {"conversation": await _create(rig), "input": None}

        assert "x" == await _prompt(rig, response["id"])
        assert ["x", "ab"] == await _texts(rig, conversation_id)
        assert (400, "input") == (await error(rig, "POST", RESPONSES, empty))[:2]

    run(test)


def test_a_run_is_written_with_its_items() -> None:
    """In one commit: whatever ends the server, nothing goes on that no conversation knows."""

    async def test(rig: Rig) -> None:
        conversation_id = await _create(rig, "x")
        commit, written = rig.store.commit, []

        async def keep(runs: Any, events: Any, items: Any) -> None:  # noqa: ANN401
            await commit(runs, events, items)
            written.extend((len(runs), id_, len(new)) for id_, new in items)

        rig.store.commit = keep  # type: ignore[assignment, method-assign]
        await _answer(rig, conversation_id)

        assert [(1, conversation_id, 2)] == written
        assert ["x", "1", "ab"] == await _texts(rig, conversation_id)

    run(test)


def test_a_run_that_cannot_be_kept_is_no_item() -> None:
    """503 if its first commit fails, and the conversation is as it was."""

    async def test(rig: Rig) -> None:
        conversation_id = await _create(rig, "x")
        rig.store.failures = [StoreFailed("disk full")]
        body = BODY | {"conversation": conversation_id}

        assert (503, None, "store_failed") == await error(rig, "POST", RESPONSES, body)
        await turns()
        assert ["x"] == await _texts(rig, conversation_id)
        assert (0, set()) == (rig.admission.num_live, rig.store.unended)

    run(test)


def test_who_leaves_early_leaves_a_whole_conversation() -> None:
    """A request that is dropped while its run is written has begun a run that goes on."""

    async def test(rig: Rig) -> None:
        conversation_id = await _create(rig)
        commit, is_writing = rig.store.commit, asyncio.Event()

        async def slow(*args: Any) -> None:  # noqa: ANN401
            rig.store.commit = commit  # type: ignore[method-assign]
            is_writing.set()
            await turns()
            await commit(*args)

        rig.store.commit = slow  # type: ignore[method-assign]
        body = BODY | {"conversation": conversation_id, "background": True}
        asking = asyncio.create_task(call(rig, "POST", RESPONSES, body))
        await is_writing.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        rig.engine.allow(100)
        await turns()

        assert ["1", "ab"] == await _texts(rig, conversation_id)

    run(test)


def test_a_conversation_has_an_end() -> None:
    """A full one takes neither items nor answers."""

    async def test(rig: Rig) -> None:
        conversation_id = await _create(rig)
        message = Message("user", "a")
        items = [ConversationItem(item_id=f"{at}", message=message) for at in range(MAX_ITEMS - 1)]
        await rig.store.append_items(conversation_id, items)
        path = f"{PATH}/{conversation_id}/items"

        assert (400, "conversation") == (
            await error(rig, "POST", RESPONSES, BODY | {"conversation": conversation_id})
        )[:2]
        assert (400, "items") == (
            await error(rig, "POST", path, {"items": [_user("a"), _user("b")]})
        )[:2]
        assert 200 == (await call(rig, "POST", path, {"items": [_user("a")]})).status

    run(test)


def test_there_is_an_end_of_conversations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant that has as many as may be is told so, and may go on when one is deleted."""
    monkeypatch.setattr(conversations, "MAX_CONVERSATIONS", 2)

    async def test(rig: Rig) -> None:
        first = await _create(rig)
        await _create(rig)
        refused = await call(rig, "POST", PATH, {})

        assert 400 == refused.status
        assert "2 conversations already" in refused.json["error"]["message"]
        await ok(rig, "DELETE", f"{PATH}/{first}")
        await _create(rig)

    run(test)


def test_a_conversation_has_an_end_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it takes to read one is bounded, whatever is said in it; so is what a run keeps."""
    for module in (acceptance, conversations):
        monkeypatch.setattr(module, "MAX_KEPT_BYTES", 1000)

    async def test(rig: Rig) -> None:
        conversation_id = await _create(rig, "x" * 999)
        path = f"{PATH}/{conversation_id}/items"
        rig.engine.allow(9)

        assert (400, "items") == (await error(rig, "POST", path, {"items": [_user("é")]}))[:2]
        assert (400, "items") == (await error(rig, "POST", PATH, {"items": [_user("x" * 1001)]}))[
            :2
        ]
        beside = BODY | {"conversation": conversation_id, "input": "é", "previous_item_id": "root"}
        assert (400, "conversation") == (await error(rig, "POST", RESPONSES, beside))[:2]
        long = {"role": "user", "content": "x" * 1001}
        chat = {"messages": [long, {"role": "user", "content": "a"}], "truncate": 9, "store": True}
        assert (400, "messages") == (await error(rig, "POST", "/v1/chat/completions", chat))[:2]
        assert 200 == (await call(rig, "POST", path, {"items": [_user("x")]})).status

    run(test)


@pytest.mark.parametrize(
    ("method", "path", "body", "query", "param"),
    [
        ("POST", "", {"items": [_user("a")] * 21}, {}, "items"),
        ("POST", "", {"items": [_user("a"), {"type": "reasoning"}]}, {}, "items.1.type"),
        ("POST", "", {"items": [_user("\ud800")]}, {}, "items.0.content.0.text"),
        ("POST", "", {"items": [_user("a") | {"tool_calls": [{}]}]}, {}, "items.0.tool_calls"),
        ("POST", "", {"metadata": {"a": 1}}, {}, "metadata.a"),
        ("POST", "", {"metadata": {"a": "\ud800"}}, {}, "metadata.a"),
        ("POST", "", {"metadata": {str(at): "" for at in range(17)}}, {}, "metadata"),
        ("POST", "/{id}", {}, {}, "metadata"),
        ("POST", "/{id}/items", {"items": []}, {}, "items"),
        ("POST", "/{id}/items", {}, {}, "items"),
        ("GET", "", None, {"limit": 0}, "limit"),
        ("GET", "", None, {"limit": 101}, "limit"),
        ("GET", "/{id}/items", None, {"order": "newest"}, "order"),
        ("GET", "/{id}/items", None, {"after": "a" * 200}, "after"),
        ("GET", "/{id}/items", None, {"after": "msg_0"}, "after"),
        ("GET", "", None, {"after": "conv_0"}, "after"),
        ("GET", "/{id}/items", None, {"include": "x"}, "include"),
        ("GET", "/{id}/items/msg_0", None, {"include[]": "x"}, "include"),
        ("POST", "/{id}/items", {"items": [_user("a")]}, {"include": "x"}, "include"),
    ],
)
def test_what_is_wrong_is_named(
    method: str, path: str, body: object, query: dict[str, object], param: str
) -> None:
    """400 with the path of the field."""

    async def test(rig: Rig) -> None:
        path_of_one = PATH + path.format(id=await _create(rig))
        assert (400, param) == (await error(rig, method, path_of_one, body, query=query))[:2]

    run(test)
