"""The chat page, when a model writes what should run in a browser."""

from __future__ import annotations

import pytest
from browser import Page
from harness import eventually
from payloads import PAYLOADS
from speaker import SpeakingServer

pytestmark = pytest.mark.slow

IDLE = "document.querySelector('.answer') && !document.querySelector('[aria-busy=true]')"
COUNT = "window.hits = 0; window.hit = () => { hits += 1; };"
#: Everything that a person could press in an answer, pressed, without going anywhere.
PRESS = """(() => {
  addEventListener('click', (event) => event.preventDefault(), { capture: true });
  for (const element of document.querySelectorAll('.markdown *, .thoughts *, .said *')) {
    element.dispatchEvent(new MouseEvent('mouseover', { bubbles: true }));
    element.click?.();
  }
})()"""
#: Elements and attributes in an answer that have no business there.
FOREIGN = """[...document.querySelectorAll('.markdown *')].filter(element =>
  element.closest('.katex') === null && (
    /^(script|iframe|object|embed|link|meta|base|form|svg|img|style|video|audio|template)$/i
      .test(element.tagName)
    || [...element.attributes].some(({ name, value }) =>
      name.startsWith('on') || name === 'style' || /^\\s*(javascript|data|vbscript):/i.test(value)))
).map(element => element.outerHTML)"""


def test_nothing_that_a_model_writes_runs(page: Page, server: SpeakingServer) -> None:
    """Over fifty payloads as answer, as thoughts and as a question: shown, never run."""
    assert len(PAYLOADS) >= 50
    text = "\n\n".join(PAYLOADS)
    server.says(f"<think>{text}</think>{text}\n\nThe end.")
    page.tab.add_init_script(COUNT)
    page.open(server.url + "/")
    page.ask(text)
    page.has("The end.")
    page.sees(IDLE)
    page.sees("document.querySelectorAll('.code').length >= 2")

    page.evaluate(PRESS)
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert (0, []) == (page.evaluate("hits"), page.evaluate(FOREIGN))
    assert page.has("<script>hit()</script>", ".markdown")
    page.tab.reload()
    page.has("The end.")
    assert 0 == page.evaluate("hits")
    assert {server.url} == {"/".join(url.split("/")[:3]) for url in page.requested()}
    assert [] == page.complaints()


@pytest.mark.parametrize("at", range(0, len(PAYLOADS), 11))
def test_nor_in_a_stream_of_its_own(page: Page, server: SpeakingServer, at: int) -> None:
    """What is cut into small pieces is as harmless, in every state in between."""
    server.says(PAYLOADS[at], 0.01)
    page.tab.add_init_script(COUNT)
    page.open(server.url + "/")
    page.ask("Go!")
    page.sees(IDLE)

    assert (0, []) == (page.evaluate("hits"), page.evaluate(FOREIGN))
    assert {server.url} == {"/".join(url.split("/")[:3]) for url in page.requested()}


def test_what_a_policy_refuses_is_heard(page: Page, server: SpeakingServer) -> None:
    """These tests would know: of an image of another host, and of an error that nobody catches."""
    page.open(server.url + "/")
    page.evaluate("document.body.append(Object.assign(new Image(), { src: 'https://a.test/' }))")
    page.evaluate("setTimeout(() => { throw new Error('uncaught'); })")
    page.evaluate("fetch('/no-such-thing').then(() => 0)")

    eventually(lambda: len(page.complaints()) >= 2, "both are heard")
    refused, thrown = sorted(page.complaints(), key=lambda complaint: "uncaught" in complaint)
    assert ("img-src" in refused, thrown) == (True, "uncaught")
