"""The chat page, and answers that are long."""

from __future__ import annotations

import json

import pytest
from browser import Page
from long_answer import code, long_answer
from speaker import SpeakingServer

pytestmark = pytest.mark.slow

#: Characters that a page may look at, render, or lay out anew for the next few characters.
MAX_CHARS = 7000
#: Adds a text in small steps to a view in the page. Its value: the most characters of any step
#: that were looked at, went through the sanitizer, and stand in parts of the page that changed.
GROW = """(async (text) => {
  const { MarkdownView } = await import('./web/view.js');
  const { default: sanitizer } = await import('./web/vendor/purify.js');
  const root = document.createElement('div');
  const view = new MarkdownView(root);
  const most = { looked: 0, rendered: 0, changed: 0 };
  const saw = (what, count) => { most[what] = Math.max(most[what], count); };
  const { indexOf } = String.prototype;
  const { sanitize } = sanitizer;
  const watch = new MutationObserver(() => {});
  watch.observe(root, { subtree: true, childList: true, characterData: true });
  const inPart = (node) => (node.nodeType === 1 ? node : node.parentElement)
    ?.closest('.piece, .block:not(.code)');
  for (let at = 0; at < text.length; at += 40) {
    let numRendered = 0;
    String.prototype.indexOf = function (...sought) {
      saw('looked', this.length);
      return indexOf.apply(this, sought);
    };
    sanitizer.sanitize = (html, ...options) => {
      numRendered += html.length;
      return sanitize.call(sanitizer, html, ...options);
    };
    view.add(text.slice(at, at + 40), at + 40 >= text.length);
    view.work(Infinity);
    String.prototype.indexOf = indexOf;
    sanitizer.sanitize = sanitize;
    const changed = new Set(watch.takeRecords().flatMap(
      ({ target, addedNodes }) => [target, ...addedNodes].map(inPart)));
    changed.delete(undefined);
    changed.delete(null);
    saw('rendered', numRendered);
    saw('changed', [...changed].reduce((sum, part) => sum + part.textContent.length, 0));
  }
  view.close();
  return most;
})(%s)"""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(long_answer(3), id="everything"),
        pytest.param(code(1500), id="code"),
        pytest.param("| a | b |\n|---|---|\n" + "| 1 | *2* |\n" * 2000, id="a table"),
        pytest.param("- one item of many\n" * 2000, id="a list"),
        pytest.param("word " * 8000, id="a paragraph"),
        pytest.param("some words\n" * 4000, id="lines"),
    ],
)
def test_what_comes_next_costs_the_same_wherever_it_comes(
    page: Page, server: SpeakingServer, text: str
) -> None:
    """No step looks at, renders or changes more than a small part of what is there."""
    page.open(server.url + "/")

    most = page.evaluate(GROW % json.dumps(text))

    assert len(text) > 3 * MAX_CHARS
    assert 0 < most["looked"] < MAX_CHARS
    assert most["rendered"] < 4 * MAX_CHARS  # HTML is longer than its text
    assert 0 < most["changed"] < MAX_CHARS


def test_long_code_is_whole(page: Page, server: SpeakingServer) -> None:
    """It is shown, coloured and copied as it was written, though it is made in pieces."""
    said = code(150)
    server.says(f"{said}\n\nThe end.")
    page.open(server.url + "/")
    page.ask("Write!")
    page.has("The end.", ".answer")
    pieces = "[...document.querySelectorAll('.piece')]"
    page.sees(f"{pieces}.length && {pieces}.every(p => p.querySelector('.hljs-number'))")

    shown = "document.querySelector('.code code')"
    assert said.split("\n", 1)[1].removesuffix("\n```") == page.evaluate(f"{shown}.textContent")
    assert page.evaluate(f"{shown}.textContent") == page.evaluate(
        f"(getSelection().selectAllChildren({shown}), getSelection().toString())"
    )
    assert page.evaluate(f"{shown}.children.length") > 5
    lines = page.evaluate(
        f"{shown}.offsetHeight / parseFloat(getComputedStyle({shown}).lineHeight)"
    )
    assert 151 == round(lines)
