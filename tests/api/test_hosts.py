"""A page whose own name leads to this machine gets nowhere: the name that it calls is looked at."""

from __future__ import annotations

import json

import pytest
from http_rig import call
from rig import Rig, run
from socket_rig import connected

from streamwell.server.app import create_app

pytestmark = pytest.mark.timeout(30)

PROMPT = {"type": "prompt", "prompt": "ab", "raw": True, "max_tokens": 3}

OURS = [
    "localhost",
    "localhost:8000",
    "LocalHost:8000",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.8.9.10:8000",
    "[::1]",
    "[::1]:8000",
    "chat.example:8000",
    "CHAT.example",
    "[fd00::7]:8000",
]
STRANGERS = [
    "",
    ":8000",
    "evil.example",
    "evil.example:8000",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "evil.example:8000@localhost",
    "user@localhost",
    "localhost/evil",
    "localhost:80:80",
    "localhost, evil.example",
    "localhost evil.example",
    "notlocalhost",
    "0.0.0.0:8000",
    "[::]:8000",
    "192.0.2.1",
    "::1",
    "sub.chat.example",
    "127.0.0.1\u00b2",
]


def _guard(rig: Rig) -> None:
    allowed_hosts = ("Chat.example", "[fd00::7]")
    rig.app = create_app(rig.services, max_body_bytes=1000, allowed_hosts=allowed_hosts)


@pytest.mark.parametrize("host", OURS)
def test_names_of_this_machine_and_allowed_ones_are_served(host: str) -> None:
    """On any port, over HTTP and over a WebSocket."""

    async def test(rig: Rig) -> None:
        _guard(rig)
        assert 200 == (await call(rig, "GET", "/v1/models", headers={"host": host})).status
        async with connected(rig, host=host) as client:
            assert 101 == client.status

    run(test)


@pytest.mark.parametrize("host", STRANGERS)
def test_other_names_are_refused(host: str) -> None:
    """403 in OpenAI's words, for every path and before anything is done."""

    async def test(rig: Rig) -> None:
        _guard(rig)
        body = {"prompt": "ab", "max_tokens": 3}
        for method, path in (("GET", "/"), ("GET", "/live"), ("POST", "/v1/completions")):
            answer = await call(rig, method, path, body, headers={"host": host})
            assert (403, "wrong_host") == (answer.status, answer.json["error"]["code"])
            assert answer.headers["x-request-id"]
        async with connected(rig, host=host) as client:
            assert 403 == client.status
        assert "wrong_host" == json.loads(client.denial)["error"]["code"]
        assert 0 == rig.engine.stats().num_steps

    run(test)


def test_who_names_no_server_is_refused() -> None:
    """HTTP/1.0 allows it; browsers always send one."""

    async def test(rig: Rig) -> None:
        _guard(rig)
        answer = await call(rig, "GET", "/v1/models")
        assert (403, "wrong_host") == (answer.status, answer.json["error"]["code"])

    run(test)


def test_a_server_that_is_open_to_others_knows_no_names() -> None:
    """Without a list any name will do: a key is what guards it."""

    async def test(rig: Rig) -> None:
        for headers in ({}, {"host": "any.example"}):
            assert 200 == (await call(rig, "GET", "/v1/models", headers=headers)).status
        async with connected(rig, host="any.example") as client:
            assert 101 == client.status

    run(test)
