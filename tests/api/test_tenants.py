"""Nobody sees another tenant's runs, conversations or completions, by whatever road."""

from __future__ import annotations

from typing import Any

import pytest
from http_rig import call, error, ok
from rig import Rig, run

pytestmark = pytest.mark.timeout(30)

MINE = {"authorization": "Bearer mine"}
OTHERS = {"authorization": "Bearer others"}
TEXT: dict[str, Any] = {"input": "a", "max_output_tokens": 1}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
ITEMS = {"items": [{"role": "user", "content": "a"}]}

#: Method, path and body of every request that names something of a tenant.
REQUESTS: list[tuple[str, str, Any]] = [
    ("GET", "/v1/responses/{response}", None),
    ("GET", "/v1/responses/{response}?stream=true", None),
    ("GET", "/v1/responses/{response}?stream=true&starting_after=3", None),
    ("GET", "/v1/responses/{response}/input_items", None),
    ("POST", "/v1/responses/{response}/cancel", None),
    ("DELETE", "/v1/responses/{response}", None),
    ("POST", "/v1/responses", TEXT | {"previous_response_id": "{response}"}),
    ("POST", "/v1/responses", TEXT | {"conversation": "{conversation}"}),
    ("GET", "/v1/conversations/{conversation}", None),
    ("POST", "/v1/conversations/{conversation}", {"metadata": {}}),
    ("DELETE", "/v1/conversations/{conversation}", None),
    ("GET", "/v1/conversations/{conversation}/items", None),
    ("POST", "/v1/conversations/{conversation}/items", ITEMS),
    ("GET", "/v1/conversations/{conversation}/items/{item}", None),
    ("DELETE", "/v1/conversations/{conversation}/items/{item}", None),
    ("GET", "/v1/chat/completions/{completion}", None),
    ("GET", "/v1/chat/completions/{completion}?stream=true", None),
    ("GET", "/v1/chat/completions/{completion}/messages", None),
    ("POST", "/v1/chat/completions/{completion}", {"metadata": {}}),
    ("DELETE", "/v1/chat/completions/{completion}", None),
    ("GET", "/v1/runs/{response}", None),
    ("GET", "/v1/runs/{completion}/events", None),
    ("POST", "/v1/runs/{response}/cancel", None),
    ("DELETE", "/v1/runs/{completion}", None),
]


async def _belongings(rig: Rig) -> dict[str, str]:
    """The ids of what one tenant has."""
    rig.engine.allow(2)
    conversation = await ok(rig, "POST", "/v1/conversations", ITEMS, headers=MINE)
    path = f"/v1/conversations/{conversation['id']}/items"
    items = await ok(rig, "GET", path, headers=MINE)
    response = await ok(rig, "POST", "/v1/responses", TEXT, headers=MINE)
    chat = CHAT | {"store": True}
    completion = await ok(rig, "POST", "/v1/chat/completions", chat, headers=MINE)
    return {
        "conversation": conversation["id"],
        "item": items["data"][0]["id"],
        "response": response["id"],
        "completion": completion["id"],
    }


async def _status(
    rig: Rig, ids: dict[str, str], request: tuple[str, str, Any], headers: dict[str, str]
) -> int:
    method, path, body = request
    path, _, query_string = path.format(**ids).partition("?")
    query = dict(pair.split("=") for pair in query_string.split("&") if pair)
    if isinstance(body, dict):
        body = {
            name: value.format(**ids) if isinstance(value, str) else value
            for name, value in body.items()
        }
    return (await call(rig, method, path, body, query=query, headers=headers)).status


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: f"{r[0]} {r[1]}")
def test_anothers_things_are_not_there(request_: tuple[str, str, Any]) -> None:
    """404 for the wrong tenant, 401 for nobody; for the owner it is all still as it was."""

    async def test(rig: Rig) -> None:
        ids = await _belongings(rig)
        assert 404 == await _status(rig, ids, request_, OTHERS)
        assert 401 == await _status(rig, ids, request_, {})
        rig.engine.allow(1)
        assert 200 == await _status(rig, ids, request_, MINE)

    run(test, keys=("mine", "others"))


def test_lists_have_only_the_callers_own() -> None:
    """Neither entries nor places in another tenant's list can be reached."""

    async def test(rig: Rig) -> None:
        ids = await _belongings(rig)
        for path in ("/v1/conversations", "/v1/chat/completions"):
            assert 1 == len((await ok(rig, "GET", path, headers=MINE))["data"])
            assert [] == (await ok(rig, "GET", path, headers=OTHERS))["data"]
            for after in ids.values():
                query = {"after": after, "order": "asc"}
                refused = await error(rig, "GET", path, query=query, headers=OTHERS)
                assert (400, "after", None) == refused

    run(test, keys=("mine", "others"))


def test_a_key_of_another_tenant_names_another_request() -> None:
    """The same Idempotency-Key and the same body are two requests if two tenants send them."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(2)
        named = {"idempotency-key": "k"}
        mine, others = [
            await ok(rig, "POST", "/v1/responses", TEXT, headers=headers | named)
            for headers in (MINE, OTHERS)
        ]
        assert mine["id"] != others["id"]

    run(test, keys=("mine", "others"))
