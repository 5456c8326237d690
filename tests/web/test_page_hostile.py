"""The chat page, when a model writes what should run in a browser."""

from __future__ import annotations

import pytest
from browser import Page
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
    page.call("Page.addScriptToEvaluateOnNewDocument", source=COUNT)
    page.open(server.url + "/")
    page.ask(text)
    page.has("The end.")
    page.sees(IDLE)
    page.sees("document.querySelectorAll('.code').length >= 2")

    page.evaluate(PRESS)
    assert (0, []) == (page.evaluate("hits"), page.evaluate(FOREIGN))
    assert page.has("<script>hit()</script>", ".markdown")
    page.call("Page.reload")
    page.has("The end.")
    assert 0 == page.evaluate("hits")
    assert {server.url} == {"/".join(url.split("/")[:3]) for url in page.requested()}
    assert [] == page.complaints()


@pytest.mark.parametrize("at", range(0, len(PAYLOADS), 11))
def test_nor_in_a_stream_of_its_own(page: Page, server: SpeakingServer, at: int) -> None:
    """What is cut into small pieces is as harmless, in every state in between."""
    server.says(PAYLOADS[at], 0.01)
    page.call("Page.addScriptToEvaluateOnNewDocument", source=COUNT)
    page.open(server.url + "/")
    page.ask("Go!")
    page.sees(IDLE)

    assert (0, []) == (page.evaluate("hits"), page.evaluate(FOREIGN))
    assert {server.url} == {"/".join(url.split("/")[:3]) for url in page.requested()}
