"""The scripts of the guide, each taken from its page, show whole answers in a browser."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from browser import Page
from harness import HOST, ServerProcess, eventually

sys.path.append(str(Path(__file__).parents[1] / "docs"))

from guide import Block, blocks_run_by

pytestmark = pytest.mark.slow

#: What a page has around the script: where text is shown, and here what is asked about afterwards.
AROUND = """
window.shown = '';
window.show = text => { shown += text; };
(async () => {
%s
source.addEventListener('message', event => { window.run = event.lastEventId.split(':')[0]; });
window.source = source;
})()
"""
CLOSED = 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with closing(
        ServerProcess(tmp_path_factory.mktemp("server"), "--engine", "scripted")
    ) as server:
        server.wait_until_ready()
        yield server


@pytest.mark.parametrize("block", blocks_run_by(__file__), ids=str)
def test_script_shows_the_whole_answer(block: Block, page: Page, server: ServerProcess) -> None:
    """It shows the run's text, each piece once, and closes its source at the end."""
    page.open(f"http://{HOST}:{server.port}/live")
    page.evaluate(AROUND % block.code)
    eventually(lambda: page.evaluate("source.readyState") == CLOSED, "the script has closed it")
    run = server.client.get(f"/v1/runs/{page.evaluate('run')}").json()

    assert "completed" == run["status"]
    assert run["choices"][0]["text"]
    assert run["choices"][0]["text"] == page.evaluate("shown")
