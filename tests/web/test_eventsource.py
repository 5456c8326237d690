"""A browser's own `EventSource`, and nothing else, gets a whole answer through every breakdown."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from browser import Page
from harness import HOST, ServerProcess, StartServer, eventually
from proxy import cutting_proxy

pytestmark = pytest.mark.slow

SLOW = ("--engine", "scripted", "--scripted-step-s", "0.05")
NUM_TOKENS = 300
#: Lengths of answers, headers and all: some tokens each, and not at the end of a frame.
CUTS = (1001, 1102, 1203)
#: The server is killed after so many messages.
NUM_BEFORE_KILL = 80
SCRIPT = """
window.seen = {ids: [], texts: [], done: [], opens: 0};
window.source = new EventSource(
  '/v1/stream?prompt=Once+upon+a+time&max_tokens=%d&seed=1&temperature=0.8');
source.onopen = () => { seen.opens += 1; };
source.onmessage = event => {
  seen.ids.push(event.lastEventId);
  seen.texts.push(JSON.parse(event.data).text);
};
source.addEventListener('done', event => {
  seen.ids.push(event.lastEventId);
  seen.done.push(JSON.parse(event.data));
});
0
"""
CLOSED = 2


def _num_runs(server: ServerProcess) -> int:
    with closing(sqlite3.connect(server.database_path)) as database:
        return int(database.execute("SELECT count(*) FROM runs").fetchone()[0])


def _kill_and_restart(server: ServerProcess, start_server: StartServer) -> ServerProcess:
    server.signal(signal.SIGKILL)
    server.wait()
    folder = server.database_path.parent
    successor = start_server(*SLOW, data_dir=folder, port=server.port)
    successor.wait_until_ready()
    return successor


def _check_each_once(seen: dict[str, Any]) -> str:
    """Every message has a number of its own, in order; returns the run that all are of."""
    runs, numbers = zip(*(event_id.split(":") for event_id in seen["ids"]), strict=True)
    assert 1 == len(set(runs))
    assert sorted(set(map(int, numbers))) == [int(number) for number in numbers]
    return str(runs[0])


def test_an_answer_survives_the_network_and_the_server(
    page: Page, start_server: StartServer
) -> None:
    """Three cuts and a `kill -9`: the page has the run's text, each event once, of a single run."""
    server = start_server(*SLOW)
    server.wait_until_ready()
    with cutting_proxy(server.port, "/v1/stream", CUTS) as proxy:
        page.open(f"http://{HOST}:{proxy.port}/live")
        page.evaluate(SCRIPT % NUM_TOKENS)
        eventually(
            lambda: page.evaluate("seen.texts.length") >= NUM_BEFORE_KILL, "the page has some text"
        )
        assert (len(CUTS), []) == (proxy.num_cut, proxy.cuts)
        assert [] == page.evaluate("seen.done")
        server = _kill_and_restart(server, start_server)
        # it reconnects after the end once more, and is told with 204 that this was all
        eventually(lambda: page.evaluate("source.readyState") == CLOSED, "the page has the end")
        seen = page.evaluate("seen")

    run_id = _check_each_once(seen)
    run = server.client.get(f"/v1/runs/{run_id}").json()
    assert run["choices"][0]["text"] == "".join(seen["texts"])
    assert (NUM_TOKENS, "completed") == (run["usage"]["completion_tokens"], run["status"])
    assert [{"finish_reason": "length", "usage": run["usage"]}] == seen["done"]
    assert len(CUTS) + 2 == seen["opens"]
    assert 1 == _num_runs(server)
