"""Who may open `/v1/ws`: keys, tickets, first messages, and pages of other sites."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rig import Rig, run
from socket_rig import connected, text_of

from streamwell.server.routes import ws

pytestmark = pytest.mark.timeout(30)

KEY, OTHER_KEY = "sk-one", "sk-two"
KEYS = (KEY, OTHER_KEY)
#: Of a page of this server, see `connected`.
OURS = "http://here:8000"
PROMPT = {"type": "prompt", "prompt": "ab", "raw": True, "max_tokens": 3}

STRANGERS = [
    "http://evil.example",
    "http://here:8001",
    "http://here",
    "https://here",
    "http://here.evil.example:8000",
    "http://evil.example:8000/here:8000",
    "http://here:8000@evil.example",
    "http://here:port",
    "file://here:8000",
    "null",
    "",
]


async def _check_serves(rig: Rig, **handshake: Any) -> None:  # noqa: ANN401 - of `connected`
    first = handshake.pop("first", None)
    async with connected(rig, **handshake) as client:
        if first is not None:
            client.say(**first)
        rig.engine.allow(3)
        client.say(**PROMPT)
        await client.until_frames(1, "done")
    assert "abc" == text_of(client.frames)


async def _check_refused(rig: Rig, status: int, **handshake: Any) -> None:  # noqa: ANN401
    async with connected(rig, **handshake) as client:
        pass
    assert status == client.status, handshake
    code = {401: "invalid_api_key", 403: "wrong_origin"}[status]
    assert code == json.loads(client.denial)["error"]["code"]


def test_without_keys_everybody_on_this_machine_may_come_in() -> None:
    """A program sends no origin; a page has that of the server, with or without a useless key."""

    async def test(rig: Rig) -> None:
        await _check_serves(rig)
        await _check_serves(rig, origin=OURS)
        await _check_serves(rig, origin="http://HERE:8000")
        await _check_serves(rig, authorization="Bearer anything")
        await _check_serves(rig, host="here", origin="http://here")
        await _check_serves(rig, host="here", origin="https://here:443")

    run(test)


@pytest.mark.parametrize("origin", STRANGERS)
def test_a_page_of_another_site_is_refused(origin: str) -> None:
    """403 before the connection is open; no ticket helps where there are no keys."""

    async def test(rig: Rig) -> None:
        await _check_refused(rig, 403, origin=origin)
        await _check_refused(rig, 403, origin=origin, query="ticket=x")
        await _check_refused(rig, 403, origin=origin, authorization="Bearer x")

    run(test)


def test_a_key_opens_whatever_the_origin() -> None:
    """A page cannot send these headers, and has a ticket only if it was given one."""

    async def test(rig: Rig) -> None:
        tenant = rig.services.keys.tenant(KEY)
        assert tenant is not None
        ticket, _ = rig.services.keys.ticket(tenant, 60)
        for origin in ({}, {"origin": OURS}, {"origin": STRANGERS[0]}):
            await _check_serves(rig, authorization=f"Bearer {KEY}", **origin)
            await _check_serves(rig, x_api_key=OTHER_KEY, **origin)
            await _check_serves(rig, query=f"ticket={ticket}", **origin)

    run(test, keys=KEYS)


def test_a_wrong_key_is_refused_at_the_door() -> None:
    """401, and no second try with a message; a wrong ticket is not mended by a right key."""

    async def test(rig: Rig) -> None:
        await _check_refused(rig, 401, authorization="Bearer wrong")
        await _check_refused(rig, 401, authorization="Bearer ")
        await _check_refused(rig, 401, x_api_key="wrong")
        await _check_refused(rig, 401, query="ticket=")
        await _check_refused(rig, 401, query="ticket=a.9999999999.b", x_api_key=KEY)
        await _check_refused(rig, 403, origin=STRANGERS[0])
        await _check_refused(rig, 403, origin=STRANGERS[0], cookie=f"api_key={KEY}")

    run(test, keys=KEYS)


def test_a_browser_sends_its_key_first() -> None:
    """A page of this server cannot send headers, but a first message."""

    async def test(rig: Rig) -> None:
        await _check_serves(rig, origin=OURS, first={"type": "auth", "key": KEY})
        await _check_serves(rig, first={"type": "auth", "key": OTHER_KEY})

    run(test, keys=KEYS)


NO_KEYS: list[str] = [
    json.dumps(PROMPT),
    json.dumps({"type": "auth", "key": "wrong"}),
    json.dumps({"type": "auth", "key": ""}),
    json.dumps({"type": "auth", "key": None}),
    json.dumps({"type": "auth"}),
    json.dumps({"type": "resume", "run": "run_a", "seq": -1}),
    "{",
    "[]",
]


@pytest.mark.parametrize("first", NO_KEYS)
def test_anything_else_first_is_no_key(first: str) -> None:
    """4401, and nothing of the message is done or told."""

    async def test(rig: Rig) -> None:
        async with connected(rig) as client:
            client.say_text(first)
            assert 4401 == await client.until_closed()
        assert [] == client.frames
        assert set() == rig.store.unended
        assert 0 == rig.engine.stats().num_steps

    run(test, keys=KEYS)


def test_a_key_must_come_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is silent is sent away."""

    async def test(rig: Rig) -> None:
        async with connected(rig) as client:
            assert 4401 == await client.until_closed()

    assert 0 < ws.AUTH_TIMEOUT_S <= 5
    monkeypatch.setattr(ws, "AUTH_TIMEOUT_S", 0.01)
    run(test, keys=KEYS)


def test_a_wrong_key_later_ends_the_connection() -> None:
    """A right one, of the same tenant, changes nothing."""

    async def test(rig: Rig) -> None:
        async with connected(rig, x_api_key=KEY) as client:
            client.say(type="auth", key=KEY)
            rig.engine.allow(3)
            client.say(**PROMPT)
            await client.until_frames(1, "done")
            client.say(type="auth", key=OTHER_KEY)
            assert 4401 == await client.until_closed()

    run(test, keys=KEYS)


def test_another_tenants_run_is_not_there() -> None:
    """Neither to be read nor to be cancelled; the answer is that of a run that never was."""

    async def test(rig: Rig) -> None:
        async with connected(rig, x_api_key=KEY) as mine, connected(rig, x_api_key=OTHER_KEY) as o:
            mine.say(**PROMPT)
            run_id = (await mine.until_frames(1, "started"))[0]["run"]
            for name in (run_id, "run_none"):
                o.say(type="resume", run=name, seq=-1)
                o.say(type="cancel", run=name)
            errors = [frame["error"] for frame in await o.until_frames(4, "error")]
            rig.engine.allow(3)
            await mine.until_frames(1, "done")

        assert [errors[0]] * 4 == errors
        assert "run_not_found" == errors[0]["code"]
        assert "abc" == text_of(mine.frames)

    run(test, keys=KEYS)


def test_a_binary_frame_ends_the_connection() -> None:
    """1003, before and after the key."""

    async def test(rig: Rig) -> None:
        async with connected(rig) as client:
            client.say_bytes(b"{}")
            assert 1003 == await client.until_closed()
        async with connected(rig, x_api_key=KEY) as client:
            client.say_bytes(b"{}")
            assert 1003 == await client.until_closed()

    run(test, keys=KEYS)
