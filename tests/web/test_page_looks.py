"""The chat page for everybody: contrast, names, small screens, and a main thread that is free."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import Page
from speaker import SpeakingServer

pytestmark = pytest.mark.slow

AXE = (Path(__file__).parent / "vendor" / "axe.js").read_text(encoding="utf-8")
IDLE = "document.querySelector('.answer') && !document.querySelector('[aria-busy=true]')"
ANSWER = (
    "<think>Hm.</think># Title\n\nA [link](https://example.com/) and `code`.\n\n> quoted\n\n"
    "```python\ndef f(x):  # why\n    return 'x' + 1\n```\n\n"
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n$x^2$\n\nThe end."
)
DECORATED = "document.querySelector('.katex') && document.querySelector('.hljs-string')"
LONG_TASKS = """window.tasks = [];
new PerformanceObserver(list => tasks.push(...list.getEntries().map(entry => entry.duration)))
  .observe({ type: 'longtask', buffered: true });"""
SECTION = (
    "## Part {0}\n\nA paragraph of **some** words, with `code`, and a formula "
    "$x_{0}^2 + \\sqrt{{{0}}}$ in it, which goes on for a while.\n\n- one\n- two\n- three\n\n"
    "```python\ndef part_{0}(value):\n    return [value * {0} for _ in value]  # why\n```\n\n"
    "$$\\sum_{{i=0}}^{{{0}}} \\frac{{i}}{{{0}}}$$\n\n"
)


def _violations(page: Page) -> list[str]:
    """What axe finds wrong with what is shown."""
    found = page.evaluate("axe.run(document).then(({ violations }) => violations)")
    return [f"{rule['id']}: {node['html']}" for rule in found for node in rule["nodes"]]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_every_view_is_accessible(
    page: Page, server: SpeakingServer, theme: str, width: int
) -> None:
    """axe finds nothing to complain about: empty, with an answer, with dialogs."""
    server.says(ANSWER)
    page.resize(width, 700)
    page.tab.emulate_media(color_scheme=theme)
    page.open(server.url + "/")
    page.sees("document.querySelector('[aria-label=Model]')")
    page.evaluate(f"{AXE}; 0")
    assert [] == _violations(page)
    page.ask("Hello!")
    page.has("The end.")
    page.sees(f"{IDLE} && {DECORATED}")
    assert [] == _violations(page)
    page.click("Settings")
    page.sees("document.querySelector('dialog')")
    assert [] == _violations(page)
    page.click("Cancel", within="dialog")
    if width < 800:
        page.click("Chats")
    page.sees("document.querySelector('.sidebar').checkVisibility()")
    assert [] == _violations(page)


def test_a_long_title_takes_no_room_of_the_chat(page: Page, server: SpeakingServer) -> None:
    """It is cut where the list of chats ends."""
    server.says("yes")
    page.resize(900, 700)
    page.open(server.url + "/")
    page.ask("x" * 100)
    page.has("yes")

    assert 272 == page.evaluate("document.getElementById('sidebar').offsetWidth")
    assert 628 == page.evaluate("document.querySelector('main').offsetWidth")


def test_a_phone_is_wide_enough(page: Page, server: SpeakingServer) -> None:
    """At 375 pixels nothing sticks out, and what is pressed is large enough for a thumb."""
    server.says(ANSWER + "\n\n" + "long" * 100 + "\n\n```\n" + "wide " * 100 + "\n```")
    page.resize(375, 700)
    page.open(server.url + "/")
    page.ask("Hello!" * 50)
    page.sees("document.querySelectorAll('.code').length == 2")
    page.sees(IDLE)
    wide = "[...document.querySelectorAll('html, .scroller')]"
    wide += ".filter(element => element.scrollWidth > element.clientWidth).length"
    assert 0 == page.evaluate(wide)
    small = """[...document.querySelectorAll('button, header select, summary')]
      .filter(element => element.checkVisibility()).map(element => element.getBoundingClientRect())
      .filter(({ width, height }) => width < 44 || height < 44).length"""
    assert 0 == page.evaluate(small)


def test_focus_goes_to_a_dialog_and_back(page: Page, server: SpeakingServer) -> None:
    """Who uses the keyboard is where they were when a dialog closes."""
    page.open(server.url + "/")
    page.sees("document.activeElement.ariaLabel == 'Message'")  # by itself, a moment after the rest
    page.evaluate("document.querySelector('[aria-label=Settings]').focus()")
    page.press("Enter")
    page.sees("document.querySelector('dialog')?.contains(document.activeElement)")
    page.press("Escape")

    page.sees("document.activeElement.ariaLabel == 'Settings'")


def test_an_answer_is_announced_once(page: Page, server: SpeakingServer) -> None:
    """The live region hears that an answer begins, and then all of it, but no tokens."""
    counted = " ".join(map(str, range(100)))
    server.says(counted, 0.005)
    page.open(server.url + "/")
    page.sees("document.querySelector('.announcer')")
    page.evaluate("""{ window.said = [];
      const announcer = document.querySelector('.announcer');
      new MutationObserver(() => said.push(announcer.textContent))
        .observe(announcer, { childList: true, characterData: true, subtree: true }); }""")
    page.ask("Count!")
    page.sees("said.at(-1)?.startsWith('Answer: 0 1 2')")

    assert ["An answer is being written.", f"Answer: {counted}"] == page.evaluate(
        "said.filter(Boolean)"
    )


def test_a_long_answer_leaves_the_page_free(page: Page, server: SpeakingServer) -> None:
    """Thousands of tokens at once, with code and formulas: no task is long, here or after a reload.

    On a quiet machine the longest has some tens of milliseconds; the bound is for what is far off,
    and not for the one task in which the whole machine stood still.
    """
    sections = [SECTION.format(number) for number in range(60)]
    server.says("".join(sections) + "The end.", 0.0)
    page.tab.add_init_script(LONG_TASKS)
    page.open(server.url + "/")
    page.ask("All of it!")
    page.has("The end.")
    page.sees(f"{IDLE} && document.querySelectorAll('.katex').length == 120")
    streamed = page.evaluate("tasks")
    page.tab.reload()
    page.has("The end.")

    assert sorted([0, 0, *streamed, *page.evaluate("tasks")])[-2] < 2000
    assert 60 == page.evaluate("document.querySelectorAll('.code').length")
