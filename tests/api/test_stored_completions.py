"""Chat completions with `store: true`: listed, looked into, noted on, deleted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from http_rig import call, error, ok
from rig import Rig, run, until

pytestmark = pytest.mark.timeout(30)

PATH = "/v1/chat/completions"
MESSAGES = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
BODY: dict[str, Any] = {"messages": MESSAGES, "max_tokens": 2, "store": True}


async def _complete(rig: Rig, **fields: object) -> dict[str, Any]:
    rig.engine.allow(2)
    return await ok(rig, "POST", PATH, BODY | fields)


async def _ids(rig: Rig, **query: object) -> list[str]:
    return [entry["id"] for entry in (await ok(rig, "GET", PATH, query=query))["data"]]


def test_only_what_is_to_be_stored_is_listed() -> None:
    """Neither `store: false` nor silence; each entry is the completion as it was answered."""

    async def test(rig: Rig) -> None:
        stored = await _complete(rig, metadata={"a": "1"})
        await _complete(rig, store=False)
        await _complete(rig, store=None)
        listed = await ok(rig, "GET", PATH)

        assert [stored] == listed["data"]
        assert {"a": "1"} == stored["metadata"]
        assert stored == await ok(rig, "GET", f"{PATH}/{stored['id']}")
        assert ("list", stored["id"], stored["id"], False) == (
            listed["object"],
            listed["first_id"],
            listed["last_id"],
            listed["has_more"],
        )

    run(test)


def test_a_list_can_be_paged_ordered_and_filtered() -> None:
    """Oldest first unless told otherwise; by model, and by any number of metadata pairs."""

    async def test(rig: Rig) -> None:
        notes = [{"a": "1", "b": "2"}, {"a": "1"}, {"a": "2", "b": "2"}]
        made = [(await _complete(rig, metadata=note, model="m"))["id"] for note in notes]
        first, *rest = await _ids(rig)
        assert set(made) == {first, *rest}
        assert [*rest[::-1], first] == await _ids(rig, order="desc")
        assert [first] == await _ids(rig, limit=1)
        assert (await ok(rig, "GET", PATH, query={"limit": 1}))["has_more"]
        assert rest == await _ids(rig, after=first)
        assert [] == await _ids(rig, after=rest[-1])
        assert [] == await _ids(rig, model="other")
        assert {*made} == {*await _ids(rig, model="m")}

        assert {made[0], made[1]} == {*await _ids(rig, **{"metadata[a]": "1"})}
        assert [made[0]] == await _ids(rig, **{"metadata[a]": "1", "metadata[b]": "2"})
        assert [] == await _ids(rig, **{"metadata[c]": "1"})
        page = await ok(rig, "GET", PATH, query={"metadata[b]": "2", "limit": 1})
        assert (1, True) == (len(page["data"]), page["has_more"])
        page = await ok(rig, "GET", PATH, query={"metadata[b]": "2", "after": page["last_id"]})
        assert (1, False) == (len(page["data"]), page["has_more"])

    run(test)


def test_a_list_cannot_go_on_after_what_is_not_there() -> None:
    """400 with the parameter: an empty page would look like the end of the list."""

    async def test(rig: Rig) -> None:
        first = (await _complete(rig))["id"]
        await _complete(rig)
        await ok(rig, "DELETE", f"{PATH}/{first}")
        kept = await _complete(rig, store=None)
        for query in ({}, {"metadata[a]": "1"}, {"model": "m"}):
            for after in (first, "chatcmpl-0", kept["id"]):
                assert (400, "after", None) == await error(
                    rig, "GET", PATH, query={"after": after, **query}
                )

    run(test)


@pytest.mark.parametrize(
    "name", ["metadata", "metadata.a", "metadata[a", "metadata_a", "metadata[]"]
)
def test_a_filter_that_is_none_is_refused(name: str) -> None:
    """What would be left out is told, and an empty wish is none."""

    async def test(rig: Rig) -> None:
        completion_id = (await _complete(rig, metadata={"a": "1"}))["id"]
        assert (400, name, None) == await error(rig, "GET", PATH, query={name: "3"})
        assert [completion_id] == await _ids(rig, **{name: ""})

    run(test)


def test_a_filter_looks_at_more_than_one_batch() -> None:
    """A rare match among many is found, however few are asked for."""

    async def test(rig: Rig) -> None:
        rare = (await _complete(rig, metadata={"rare": "yes"}))["id"]
        spec = await rig.store.run(rare)
        assert spec is not None
        common = replace(spec.terms, metadata=())
        others = [
            replace(spec, run_id=f"chatcmpl-{at:03}", created_s=at, terms=common)
            for at in range(250)
        ]
        await rig.store.commit(others, [])

        assert [rare] == await _ids(rig, limit=1, **{"metadata[rare]": "yes"})

    run(test)


def test_the_messages_that_were_answered_are_kept() -> None:
    """In their order, with ids of their own, in pages."""

    async def test(rig: Rig) -> None:
        completion_id = (await _complete(rig))["id"]
        path = f"{PATH}/{completion_id}/messages"
        listed = await ok(rig, "GET", path)
        first, second = listed["data"]

        expected = {"id": f"{completion_id}-0", "role": "system", "content": "s", "name": None}
        assert expected == first
        assert ("user", "u") == (second["role"], second["content"])
        assert [second] == (await ok(rig, "GET", path, query={"after": first["id"]}))["data"]
        assert [] == (await ok(rig, "GET", path, query={"after": second["id"]}))["data"]
        assert (400, "after", None) == await error(rig, "GET", path, query={"after": "msg_0"})
        assert [second, first] == (await ok(rig, "GET", path, query={"order": "desc"}))["data"]

    run(test)


def test_metadata_is_replaced() -> None:
    """Also while the completion is generated; nothing else changes."""

    async def test(rig: Rig) -> None:
        done = await _complete(rig, metadata={"a": "1"})
        path = f"{PATH}/{done['id']}"
        updated = await ok(rig, "POST", path, {"metadata": {"b": "2"}})
        assert done | {"metadata": {"b": "2"}} == updated == await ok(rig, "GET", path)

        answering = asyncio.create_task(call(rig, "POST", PATH, BODY))
        await until(lambda: rig.engine.num_open == 1 and bool(rig.store.unended))
        (run_id,) = rig.store.unended
        live = await ok(rig, "POST", f"{PATH}/{run_id}", {"metadata": {"c": "3"}})
        assert (None, None) == (live["usage"], live["choices"][0]["finish_reason"])
        assert {"c": "3"} == (await ok(rig, "GET", f"/v1/runs/{run_id}"))["metadata"]
        rig.engine.allow(2)
        await answering
        assert {"c": "3"} == (await ok(rig, "GET", f"{PATH}/{run_id}"))["metadata"]

    run(test)


def test_a_deleted_completion_is_gone() -> None:
    """It is neither listed nor found, and deleting it again is 404."""

    async def test(rig: Rig) -> None:
        completion_id = (await _complete(rig))["id"]
        path = f"{PATH}/{completion_id}"
        deleted = await ok(rig, "DELETE", path)

        assert {
            "id": completion_id,
            "object": "chat.completion.deleted",
            "deleted": True,
        } == deleted
        assert [] == await _ids(rig)
        assert [404, 404] == [(await call(rig, m, path)).status for m in ("GET", "DELETE")]

    run(test)


def test_what_is_not_stored_is_not_there() -> None:
    """Only stored chat completions have messages and can be changed."""

    async def test(rig: Rig) -> None:
        unstored = (await _complete(rig, store=None))["id"]
        rig.engine.allow(2)
        response = await ok(rig, "POST", "/v1/responses", {"input": "a", "max_output_tokens": 2})
        for run_id in (unstored, response["id"]):
            path = f"{PATH}/{run_id}"
            for method, end in (("POST", ""), ("DELETE", ""), ("GET", "/messages")):
                body = {"metadata": {}} if method == "POST" else None
                assert (404, None, "run_not_found") == await error(rig, method, path + end, body)

    run(test)


def test_too_many_pairs_are_refused() -> None:
    """No completion can have more of them."""

    async def test(rig: Rig) -> None:
        query = {f"metadata[{at}]": "" for at in range(17)}
        assert (400, "metadata") == (await error(rig, "GET", PATH, query=query))[:2]

    run(test)
