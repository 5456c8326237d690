"""Tickets: they open for their tenant and their time, and cannot be made up."""

from __future__ import annotations

import pytest

from streamwell.server import keys
from streamwell.server.keys import KeyRing


def test_a_ticket_is_its_tenants() -> None:
    """It stands for the key that it was made with, also after a restart of the server."""
    ring = KeyRing(("one", "two"))
    for key in ("one", "two"):
        tenant = ring.tenant(key)
        assert tenant is not None
        ticket, _ = ring.ticket(tenant, 60)
        assert (
            tenant
            == ring.tenant_of_ticket(ticket)
            == KeyRing(("two", "one")).tenant_of_ticket(ticket)
        )
        assert KeyRing(("three",)).tenant_of_ticket(ticket) is None


def test_a_ticket_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the second that it names."""
    ring = KeyRing(("one",))
    ticket, expires_s = ring.ticket(str(ring.tenant("one")), 60)
    monkeypatch.setattr(keys.time, "time", lambda: expires_s - 1)
    assert ring.tenant_of_ticket(ticket) == ring.tenant("one")
    monkeypatch.setattr(keys.time, "time", lambda: expires_s)
    assert ring.tenant_of_ticket(ticket) is None


def test_no_ticket_can_be_made_up() -> None:
    """Not by changing one, not for a stranger, not out of nothing."""
    ring = KeyRing(("one", "two"))
    ticket, expires_s = ring.ticket(str(ring.tenant("one")), 60)
    tenant, _, signature = ticket.split(".")
    forged = [
        f"{ring.tenant('two')}.{expires_s}.{signature}",
        f"{tenant}.{expires_s + 60}.{signature}",
        f"{tenant}.{expires_s}.{signature[:-1]}",
        f"{tenant}.{expires_s}.",
        KeyRing(()).ticket("stranger", 60)[0],
        "",
        "..",
        "a.b.c",
        "\udcff",
    ]
    assert [None] * len(forged) == [ring.tenant_of_ticket(text) for text in forged]


def test_without_keys_everybody_is_the_same_tenant() -> None:
    """A ticket changes nothing then, whatever it says."""
    ring = KeyRing(())
    assert ["", ""] == [ring.tenant_of_ticket(text) for text in ("x.1.y", ring.ticket("", 1)[0])]
