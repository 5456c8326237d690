"""What a person asks for on the chat page: it arrives once, or is there to be sent again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from browser import Page
from harness import eventually
from playwright.sync_api import Route
from speaker import SpeakingServer

pytestmark = pytest.mark.slow

ASKED, RESUMED = "**/v1/chat/completions", "**/v1/chat/completions/*"
MESSAGE = "document.querySelector('[aria-label=Message]').value"
IDLE = "document.querySelector('.answer[aria-busy=false] .actions')"
SECOND_BEGUN = "document.querySelectorAll('.markdown')[1]?.textContent.length > 20"
BUSY = "document.querySelector('.answer[aria-busy=true]')"


def refusal(status: int, message: str = "not now") -> dict[str, Any]:
    """What a server or a proxy answers that does not take a request."""
    return {"status": status, "json": {"error": {"message": message}}}


class Gate:
    """Holds requests until the test says what becomes of them."""

    def __init__(self) -> None:
        self.held: list[Route] = []
        self._is_open = False

    def __call__(self, route: Route) -> None:
        if self._is_open:
            route.continue_()
        else:
            self.held.append(route)

    def wait(self, page: Page, count: int) -> Route:
        """The last of so many, when the browser has told of it."""
        eventually(lambda: page.evaluate("1") and len(self.held) >= count, "it is asked")
        return self.held[count - 1]

    def open(self) -> None:
        """Let all of them go on, and those that come."""
        self._is_open = True
        for route in self.held:
            route.continue_()


def questions(page: Page) -> list[str]:
    return page.tab.locator(".said").all_inner_texts()


def begin(page: Page, server: SpeakingServer, answer: str = "well", step_s: float = 0.0) -> str:
    """Have a chat of one question, `one`, and its answer; returns its id."""
    server.says("well")
    page.open(server.url + "/")
    page.ask("one")
    page.sees(IDLE)
    server.says(answer, step_s)
    chat: str = page.evaluate("location.hash.slice(7)")
    return chat


def go_to(page: Page, chat: str) -> None:
    page.evaluate(f"location.hash = '#/{'chat/' + chat if chat else ''}'")


def test_a_question_goes_on_waiting_while_another_chat_is_open(
    page: Page, server: SpeakingServer
) -> None:
    """A busy server gets it as soon as it can, and the other chat's draft stays what it is."""
    chat = begin(page, server)
    page.tab.route(ASKED, lambda route: route.fulfill(**refusal(503)))
    page.ask("two")
    page.has("Waiting: not now.")
    go_to(page, "")
    page.has("What is on your mind?")
    page.type("a draft")
    page.tab.unroute(ASKED)
    eventually(lambda: len(server.items(chat)) == 4, "the question was asked")
    assert "a draft" == page.evaluate(MESSAGE)
    go_to(page, chat)

    page.sees("document.querySelectorAll('.answer[aria-busy=false]').length == 2")
    assert ["one", "two"] == questions(page)
    assert "" == page.evaluate(MESSAGE)


def test_a_question_that_waits_outlives_a_reload(page: Page, server: SpeakingServer) -> None:
    """It is sent again, and answered once."""
    chat = begin(page, server)
    page.tab.route(ASKED, lambda route: route.fulfill(**refusal(503)))
    page.ask("two")
    page.has("Waiting: not now.")
    page.tab.reload()
    page.has("Waiting: not now.")
    page.tab.unroute(ASKED)

    page.sees("document.querySelectorAll('.answer[aria-busy=false]').length == 2")
    assert ["one", "two"] == questions(page)
    assert 4 == len(server.items(chat))
    page.tab.reload()
    page.sees(IDLE)
    assert 4 == len(server.items(chat))


def test_what_is_refused_is_given_back(page: Page, server: SpeakingServer) -> None:
    """Before what was typed since then, in the chat that it was for."""
    gate = Gate()
    chat = begin(page, server)
    page.tab.route(ASKED, gate)
    page.ask("two")
    page.sees(BUSY)
    page.type("three")
    gate.wait(page, 1).fulfill(**refusal(400, "too long"))
    page.has("too long")
    assert "two\n\nthree" == page.evaluate(MESSAGE)

    page.type("")
    page.ask("four")
    page.sees(BUSY)
    go_to(page, "")
    page.has("What is on your mind?")
    gate.wait(page, 2).fulfill(**refusal(400, "too long"))
    page.sees(f"sessionStorage['streamwell.draft.{chat}'] == 'four'")
    assert "" == page.evaluate(MESSAGE)
    go_to(page, chat)
    page.sees(f"{MESSAGE} == 'four'")


def test_nothing_is_asked_of_a_chat_that_is_not_there_yet(
    page: Page, server: SpeakingServer
) -> None:
    """Its answer would not know what was said before."""
    gate = Gate()
    chat = begin(page, server)
    page.tab.route("**/items?*", gate)
    page.tab.reload()
    page.type("two")
    page.press("Enter")
    assert page.tab.get_by_role("button", name="Send", exact=True).is_disabled()
    gate.open()
    page.click("Send")  # as soon as it can be

    page.sees("document.querySelectorAll('.answer[aria-busy=false]').length == 2")
    one, two = server.items(chat)[1:3]
    assert one["id"] == two["previous_item_id"]


def test_a_question_waits_for_a_new_chat(page: Page, server: SpeakingServer) -> None:
    """A server that is away makes the chat when it is back; the question is asked once."""
    server.says("well")
    page.open(server.url + "/")
    page.has("What is on your mind?")
    before = len(server.chats())
    page.tab.route("**/v1/conversations", lambda route: route.abort())
    page.ask("one")
    page.has("The question is sent by itself.")
    page.tab.unroute("**/v1/conversations")

    page.sees(IDLE)
    assert ["one"] == questions(page)
    chat = page.evaluate("location.hash.slice(7)")
    assert (1, 2) == (len(server.chats()) - before, len(server.items(chat)))


def test_a_new_chat_that_nobody_waits_for_is_not_made(page: Page, server: SpeakingServer) -> None:
    """Stopped, its question is a draft again."""
    page.open(server.url + "/")
    page.has("What is on your mind?")
    before = len(server.chats())
    page.tab.route("**/v1/conversations", lambda route: route.abort())
    page.ask("one")
    page.has("The question is sent by itself.")
    page.click("Stop")

    page.sees(f"{MESSAGE} === 'one'")
    assert before == len(server.chats())


def test_a_new_chat_that_is_left_at_once_keeps_its_question(
    page: Page, server: SpeakingServer
) -> None:
    """Who goes to another chat before it is made stays there; the question is asked in it."""

    def ids() -> set[str]:
        return {each["id"] for each in server.chats()}

    gate = Gate()
    chat = begin(page, server)
    before = ids()
    go_to(page, "")
    page.has("What is on your mind?")
    page.tab.route("**/v1/conversations", gate)
    page.ask("two")
    page.sees("document.querySelectorAll('.said').length == 1")
    go_to(page, chat)
    page.sees(IDLE)
    gate.open()
    new = eventually(lambda: ids() - before, "the chat was made").pop()
    eventually(lambda: len(server.items(new)) == 2, "the question was asked")
    assert (chat, ["one"]) == (page.evaluate("location.hash.slice(7)"), questions(page))


def test_an_answer_whose_rest_is_refused_for_a_while_goes_on(
    page: Page, server: SpeakingServer
) -> None:
    """A proxy that says 429, or an error inside, once the run is known, is asked again."""
    statuses = [429, 500, 524]
    said = "well " * 600
    begin(page, server, said, step_s=0.02)

    def refuse(route: Route) -> None:
        if statuses:
            route.fulfill(**refusal(statuses.pop()))
        else:
            route.continue_()

    page.tab.route(RESUMED, refuse)
    page.ask("two")
    page.sees(SECOND_BEGUN)
    page.tab.reload()
    eventually(lambda: page.evaluate("0") or not statuses, "it was refused")
    server.says(said)
    page.sees("document.querySelectorAll('.answer[aria-busy=false]').length == 2")

    last = "[...document.querySelectorAll('.markdown')].at(-1).innerText.trim()"
    page.sees(f"{last} === {json.dumps(said.strip())}")


def test_an_answer_whose_rest_cannot_be_had_does_not_block_the_chat(
    page: Page, server: SpeakingServer
) -> None:
    """Its end is told, and something else can be asked."""
    begin(page, server, "well " * 1000, step_s=0.02)
    page.tab.route(RESUMED, lambda route: route.fulfill(**refusal(404, "gone")))
    page.ask("two")
    page.sees(SECOND_BEGUN)
    page.tab.reload()
    page.has("It failed: gone")

    assert not page.evaluate(BUSY)
    assert "Send" == page.tab.locator(".composer .primary").inner_text()


def test_a_stop_before_the_first_word_is_kept(page: Page, server: SpeakingServer) -> None:
    """What the server may have already is stopped there, and not asked twice."""
    gate = Gate()
    chat = begin(page, server, "well " * 5000, step_s=0.01)
    page.tab.route(ASKED, gate)
    page.ask("two")
    page.click("Stop")
    page.has("Stopping…")
    gate.open()
    page.has("Stopped.")

    run = server.get(f"/v1/runs/{server.items(chat)[3]['run_id']}")
    assert ("cancelled", 4) == (run["status"], len(server.items(chat)))
    assert (["one", "two"], "") == (questions(page), page.evaluate(MESSAGE))


def test_an_edited_question_that_is_refused_is_there_still(
    page: Page, server: SpeakingServer
) -> None:
    """In its editor, until it is sent."""
    begin(page, server)
    page.tab.route(ASKED, lambda route: route.fulfill(**refusal(400, "too long")))
    page.click("Edit")
    page.type("one, in other words", into="[aria-label='Edit message']")
    page.click("Send", within=".editor")
    page.has("too long")
    editor = "document.querySelector('[aria-label=\"Edit message\"]')?.value"
    assert "one, in other words" == page.evaluate(editor)
    page.tab.unroute(ASKED)
    page.click("Send", within=".editor")

    page.sees(f"!document.querySelector('.editor') && {IDLE}")
    assert ["one, in other words"] == questions(page)


def test_what_others_wrote_on_a_chat_stays(page: Page, server: SpeakingServer) -> None:
    """A program's conversation that is gone on with here."""
    server.says("well")
    own = {"ticket": "4711", "settings.0": "no JSON"}
    made = server.client.post("/v1/conversations", json={"metadata": own}).json()
    page.open(f"{server.url}/#/chat/{made['id']}")
    page.sees("document.querySelector('.welcome')?.textContent == 'What is on your mind?'")
    page.ask("one")
    page.sees(IDLE)

    def written() -> Any:  # noqa: ANN401 - whatever JSON can say
        return server.get(f"/v1/conversations/{made['id']}")["metadata"]

    eventually(lambda: "updated" in written(), "the page notes when it was used")
    assert own == {name: value for name, value in written().items() if name != "updated"}


def test_thinking_ends_with_the_first_word(page: Page, server: SpeakingServer) -> None:
    """Also on a page that was loaded in the middle."""
    begin(page, server, "well " * 5000, step_s=0.01)
    page.ask("two")
    page.sees(SECOND_BEGUN)
    page.tab.reload()
    page.sees(f"{BUSY}?.querySelector('.markdown').textContent.length > 20")

    assert not page.evaluate("document.querySelector('.status')")
    page.click("Stop")
    page.has("Stopped.")


def test_a_stop_holds_if_the_server_may_have_the_question(
    page: Page, server: SpeakingServer
) -> None:
    """A connection was cut before it said so: that it is busy afterwards proves nothing."""
    failures = [0, 503, 503]
    chat = begin(page, server, "well " * 5000, step_s=0.01)

    def fail(route: Route) -> None:
        if not failures:
            route.continue_()
        elif status := failures.pop(0):
            route.fulfill(**refusal(status))
        else:
            route.abort()

    page.tab.route(ASKED, fail)
    page.ask("two")
    page.has("Waiting:")
    page.click("Stop")
    page.has("Stopped.")

    assert [] == failures
    assert (["one", "two"], "") == (questions(page), page.evaluate(MESSAGE))
    assert 4 == len(server.items(chat))
