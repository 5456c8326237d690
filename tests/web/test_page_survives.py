"""The chat page, and what happens to networks and servers."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from browser import Page
from harness import HOST, StartServer, eventually
from proxy import cutting_proxy
from speaker import speaking_server

pytestmark = pytest.mark.slow

SLOW = ("--engine", "scripted", "--scripted-step-s", "0.02", "--max-model-len", "500")
QUICK = ("--engine", "scripted", "--max-model-len", "500")
#: What the page has heard of the answer, as its stream told it.
LIVE = """import('./web/chat.js').then(({ items, liveOf }) => liveOf(items.value[1]).content)"""
LENGTH = "document.querySelector('.markdown')?.textContent.length"
DONE = "document.querySelector('.answer[aria-busy=false] .ending')"


def test_an_answer_survives_the_server(
    page: Page, open_tab: Callable[[], Page], start_server: StartServer
) -> None:
    """`kill -9` in mid-answer: with the next server both tabs go on by themselves."""
    server = start_server(*SLOW)
    server.wait_until_ready()
    page.open(server.url + "/")
    page.ask("Go on!")
    page.sees(f"{LENGTH} > 20")
    other = open_tab()
    other.open(page.evaluate("location.href"))
    other.sees(f"{LENGTH} > 20")
    server.signal(signal.SIGKILL)
    server.wait()
    page.has("The answer goes on by itself.")
    successor = start_server(*SLOW, data_dir=server.database_path.parent, port=server.port)

    chat = page.evaluate("location.hash.slice(7)")
    for tab in (page, other):
        tab.sees(DONE)
    items = successor.client.get(f"/v1/conversations/{chat}/items?order=asc").json()["data"]
    run = successor.client.get(f"/v1/runs/{items[1]['run_id']}").json()
    said = run["choices"][0]["text"]
    assert ("completed", 2) == (run["status"], len(items))
    assert [said] * 2 == [tab.evaluate(LIVE) for tab in (page, other)]
    assert [2, 2] == [
        tab.evaluate("document.querySelectorAll('.message').length") for tab in (page, other)
    ]
    assert [] == page.complaints()


def test_a_question_waits_for_the_model(page: Page, start_server: StartServer) -> None:
    """The page is there before the model; what is sent meanwhile is answered, once."""
    server = start_server(*QUICK, "--scripted-load-s", "15")
    eventually(server.is_open, "the port is open")
    page.open(server.url + "/")
    page.ask("Are you there?")
    page.sees("document.body.innerText.includes('Loading brooklet')")
    page.sees(DONE)

    page.sees("!document.querySelector('.loading')")
    chats = server.client.get("/v1/conversations").json()["data"]
    items = server.client.get(f"/v1/conversations/{chats[0]['id']}/items").json()["data"]
    assert (1, 2) == (len(chats), len(items))


def test_the_key_is_asked_for_once(page: Page, open_tab: Callable[[], Page]) -> None:
    """It is sent as a header, outlives a reload, and stands in no address."""
    with speaking_server("sk-secret") as server:
        server.says("hello")
        page.open(server.url + "/")
        page.sees("document.querySelector('dialog[open]')")
        page.press("Escape")  # the second one closes a dialog, whatever a page says to the first
        page.press("Escape")
        for wrong in ("sk-s\N{HORIZONTAL ELLIPSIS}t", "sk-wrong"):  # no header has the first
            page.type(wrong, into="dialog[open] [name=key]")
            page.press("Enter")
            page.has("The server does not know this key.", "dialog")
        page.evaluate("document.querySelector('dialog [name=remember]').click()")
        page.type("sk-secret", into="dialog [name=key]")
        page.press("Enter")
        page.sees("!document.querySelector('dialog')")
        page.ask("Hi!")
        page.has("hello", ".answer")
        page.tab.reload()
        page.has("hello", ".answer")
        other = open_tab()
        other.open(page.evaluate("location.href"))
        other.has("hello", ".answer")

        assert not other.evaluate("document.querySelector('dialog') !== null")
        assert [] == [url for url in page.requested() + other.requested() if "sk-" in url]


def test_the_network_is_cut(page: Page, start_server: StartServer) -> None:
    """Connections that end at any byte: the page has each word once."""
    server = start_server(*SLOW)
    server.wait_until_ready()
    with cutting_proxy(server.port, "/v1/chat/completions/", (1500, 2700, 5100)) as proxy:
        page.open(f"http://{HOST}:{proxy.port}/")
        page.ask("Go on!")
        page.sees(f"{LENGTH} > 20")
        page.tab.reload()
        page.sees(DONE)
        assert 3 == proxy.num_cut
        chat = page.evaluate("location.hash.slice(7)")
        shown = page.evaluate(LIVE)

    items = server.client.get(f"/v1/conversations/{chat}/items?order=asc").json()["data"]
    assert items[1]["content"][0]["text"] == shown
    assert [] == page.complaints()
