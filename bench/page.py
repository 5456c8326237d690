"""What the chat page's main thread does while a long answer comes: `python -m bench.page`.

A headless Chromium shows an answer of headings, prose, lists, tables, formulas and code, 400 lines
of it in one block, that a scripted engine says at a constant rate. Whatever the machine does
besides makes a task longer by the clock, but not by the time on a processor, so both are told.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[1]
LONG_MS = 50
POLL_MS, TIMEOUT_MS = 200, 600_000
MB = 1_000_000
#: Tasks of the main thread, and the kinds of work in them.
TASK, WORK = "RunTask", ("FireAnimationFrame", "Layout", "UpdateLayoutTree", "PrePaint", "Paint")
TRACED = ["devtools.timeline", "disabled-by-default-devtools.timeline"]
#: Long tasks as the page is told of them, and the longest time in which a timer had no turn.
WATCH = """
  window.longTasks = [];
  new PerformanceObserver((list) => longTasks.push(...list.getEntries().map((e) => e.duration)))
    .observe({ type: 'longtask' });
  window.gapMs = 0;
  let last = performance.now();
  setInterval(() => {
    const now = performance.now();
    gapMs = Math.max(gapMs, now - last);
    last = now;
  }, 4);
"""
IS_READY = "document.querySelector('.models') && !document.querySelector('.loading')"
IS_DONE = "document.querySelector('.answer') && !document.querySelector('[aria-busy=true]')"

if TYPE_CHECKING:
    from browser import Page


def measure(num_sections: int, tokens_per_s: float) -> None:
    """Show an answer, and print what that took."""
    sys.path[:0] = [str(ROOT / "tests" / name) for name in ("web", "e2e", "api")]
    from browser import Page, opened_browser
    from long_answer import long_answer
    from speaker import speaking_server

    with speaking_server() as server, opened_browser() as browser:
        page = Page(browser.new_page())
        page.tab.add_init_script(WATCH)
        page.open(server.url + "/")
        page.sees(IS_READY)
        server.says(long_answer(num_sections), 1 / tokens_per_s)
        heap_before, load_before = _heap_bytes(page), os.getloadavg()[0]
        browser.start_tracing(page=page.tab, categories=TRACED)
        page.evaluate("longTasks.length = gapMs = 0")
        begin_s = time.monotonic()
        page.ask("Write!")
        # by a timer: what is measured is the work in frames
        page.tab.wait_for_function(f"() => {IS_DONE}", polling=POLL_MS, timeout=TIMEOUT_MS)
        wall_s = time.monotonic() - begin_s
        long_tasks, gap_ms = page.evaluate("[longTasks, gapMs]")
        trace = browser.stop_tracing()
        speed = page.evaluate("document.querySelector('.speed').textContent")
        print(f"{speed}; {wall_s:.0f} s")
        print(f"load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after")
        print(f"tasks of over {LONG_MS} ms: {len(long_tasks)}, {max(long_tasks, default=0)} ms")
        print(f"longest time without a turn for a timer: {gap_ms:.0f} ms")
        _print_trace(_events(trace))
        print(f"heap: {heap_before / MB:.1f} MB before, {_heap_bytes(page) / MB:.1f} MB after")
        num_elements = page.evaluate("document.querySelectorAll('*').length")
        print(f"elements: {num_elements}")


def _heap_bytes(page: Page) -> int:
    page.tab.request_gc()
    # Playwright itself has no word for it
    devtools = page.tab.context.new_cdp_session(page.tab)
    used: int = devtools.send("Runtime.getHeapUsage")["usedSize"]
    return used


def _events(trace: bytes) -> list[dict[str, Any]]:
    """What the busiest main thread did: that of the page; browsers have others in reserve."""
    events = [event for event in json.loads(trace)["traceEvents"] if event.get("ph") == "X"]
    busy: Counter[tuple[int, int]] = Counter()
    for event in events:
        if event["name"] == TASK:
            busy[event["pid"], event["tid"]] += event.get("tdur", 0)
    (thread, _), *_ = busy.most_common(1)
    return [event for event in events if (event["pid"], event["tid"]) == thread]


def _print_trace(events: list[dict[str, Any]]) -> None:
    for name in (TASK, *WORK):
        kind = [event for event in events if event["name"] == name]
        print(f"{name}: {len(kind)}, " + ", ".join(_spent(kind, by) for by in ("dur", "tdur")))


def _spent(events: list[dict[str, Any]], by: str) -> str:
    times_ms = sorted(event.get(by, 0) / 1000 for event in events) or [0.0]
    p99 = times_ms[len(times_ms) * 99 // 100]
    num_long = sum(time_ms > LONG_MS for time_ms in times_ms)
    clock = {"dur": "clock", "tdur": "processor"}[by]
    return (
        f"{clock} {sum(times_ms) / 1000:.1f} s, p99 {p99:.1f} ms, longest {times_ms[-1]:.1f} ms, "
        f"{num_long} over {LONG_MS} ms"
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument(
        "--sections", type=int, default=2, help="of about 4,500 tokens each, beside 11,000 of code"
    )
    parser.add_argument("--tokens-per-s", type=float, default=200.0)
    args = parser.parse_args()
    measure(args.sections, args.tokens_per_s)


if __name__ == "__main__":
    main()
