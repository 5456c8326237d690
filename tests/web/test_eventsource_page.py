"""`examples/eventsource.html` shows whole answers, by fetch and by EventSource, cut or not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browser import Page
from harness import HOST, ServerProcess, eventually
from proxy import cutting_proxy

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
NUM_TOKENS = 60
#: Lengths of answers, headers and all: some tokens each, and not at the end of a frame. Who posts
#: comes back with another request.
CUTS = {"fetch": (1401,), "eventsource": (1401, 1502)}
METHODS = {"fetch": "POST", "eventsource": "GET"}
WAYS = list(METHODS)


class _Quiet(SimpleHTTPRequestHandler):
    """A server of files that logs nothing."""

    def log_message(self, *_args: object) -> None: ...


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    """Where the page is served: not by our server."""
    handler = partial(_Quiet, directory=str(EXAMPLES))
    with ThreadingHTTPServer((HOST, 0), handler) as files:
        thread = threading.Thread(target=files.serve_forever)
        thread.start()
        yield f"http://{HOST}:{files.server_port}"
        files.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def server(origin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    flags = ("--engine", "scripted", "--scripted-step-s", "0.02", "--cors-origin", origin)
    with closing(ServerProcess(tmp_path_factory.mktemp("server"), *flags)) as server:
        server.wait_until_ready()
        yield server


#: Keeps what comes, in the place of the page's own handlers.
KEEP = """
window.seen = {ids: [], texts: [], num_lost: 0};
const show = handlers.text;
handlers.text = (text, id) => { seen.ids.push(id); seen.texts.push(text); show(text); };
handlers.lost = () => { seen.num_lost += 1; };
0
"""


def _ask(page: Page, origin: str, port: int, way: str) -> None:
    """Ask a server on this port."""
    page.open(f"{origin}/eventsource.html")
    page.evaluate(KEEP)
    page.evaluate(f"element('server').value = 'http://{HOST}:{port}'")
    page.evaluate(f"element('max-tokens').value = {NUM_TOKENS}")
    page.evaluate(f"element({way!r}).click()")


def _check_whole(page: Page, server: ServerProcess) -> None:
    """The page ends with what the log has, each event once and in order, all of a single run."""
    status = "element('status').textContent"
    eventually(lambda: page.evaluate(status) == "done", "the page is done")
    seen = page.evaluate("seen")
    runs, numbers = zip(*(event_id.split(":") for event_id in seen["ids"]), strict=True)
    run = server.client.get(f"/v1/runs/{runs[0]}").json()

    assert ("completed", NUM_TOKENS) == (run["status"], run["usage"]["completion_tokens"])
    assert run["choices"][0]["text"] == page.evaluate("element('text').textContent")
    assert run["choices"][0]["text"] == "".join(seen["texts"])
    assert (1, sorted({int(number) for number in numbers})) == (
        len(set(runs)),
        [*map(int, numbers)],
    )


@pytest.mark.parametrize("way", WAYS)
def test_req_13_the_page_shows_the_whole_answer(
    way: str, page: Page, origin: str, server: ServerProcess
) -> None:
    """A page of another origin, which the server was told of, has every character once."""
    _ask(page, origin, server.port, way)

    _check_whole(page, server)
    assert 0 == page.evaluate("seen.num_lost")


@pytest.mark.parametrize("way", WAYS)
def test_req_14_a_cut_answer_is_gone_on_with(
    way: str, page: Page, origin: str, server: ServerProcess
) -> None:
    """Handlers put in the place of the page's own get every event once, through each cut."""
    with cutting_proxy(server.port, "", CUTS[way]) as proxy:
        proxy.request_line = f"{METHODS[way]} /generate-stream".encode()
        _ask(page, origin, proxy.port, way)
        _check_whole(page, server)

        assert (len(CUTS[way]), []) == (proxy.num_cut, proxy.cuts)
        assert len(CUTS[way]) <= page.evaluate("seen.num_lost")


def test_a_page_of_another_origin_is_refused(page: Page, server: ServerProcess) -> None:
    """The server answers pages of the origins that it was told of, and no others."""
    page.open(f"http://{HOST}:{server.port}/live")
    request = f"fetch('http://localhost:{server.port}/live')"
    page.evaluate(
        f"{request}.then(() => window.outcome = 'read', () => window.outcome = 'refused')"
    )

    assert "refused" == eventually(lambda: page.evaluate("window.outcome"), "it is answered")
