"""A browser's own WebSocket talks to the bot at `/`, and goes on after a cut."""

from __future__ import annotations

import pytest
from browser import Page
from harness import HOST, StartServer, eventually
from proxy import cutting_proxy

pytestmark = pytest.mark.slow

SLOW = ("--engine", "scripted", "--scripted-step-s", "0.02")
#: Length of the first connection's bytes, handshake and all: it is cut within the answer.
CUT = 600
SCRIPT = """
window.seen = {run: '', texts: [], closes: 0, answers: []};
function open(query) {
  const socket = new WebSocket(`ws://${location.host}/?max_tokens=100&seed=1&ids=true${query}`);
  socket.onmessage = ({data}) => {
    if (data.startsWith('<<Run ')) {
      seen.run = data.slice(6, -2);
    } else if (data === '<<Response Finished>>') {
      seen.answers.push({run: seen.run, text: seen.texts.join('')});
      seen.texts = [];
    } else {
      seen.texts.push(data);
    }
  };
  socket.onclose = () => {
    seen.closes += 1;
    open(`&run=${seen.run}&after=${seen.texts.length}`);
  };
  window.socket = socket;
  return socket;
}
open('').onopen = () => socket.send('Space the final');
0
"""


def test_an_answer_survives_a_cut(page: Page, start_server: StartServer) -> None:
    """The page counts frames; after the cut the others come, and the conversation goes on."""
    server = start_server(*SLOW)
    server.wait_until_ready()
    with cutting_proxy(server.port, "/?max_tokens", [CUT]) as proxy:
        page.open(f"http://{HOST}:{proxy.port}/live")
        page.evaluate(SCRIPT)
        eventually(lambda: page.evaluate("seen.answers.length") == 1, "the first answer is there")
        page.evaluate("socket.send(' These are the voyages')")
        eventually(lambda: page.evaluate("seen.answers.length") == 2, "so is the second")
        seen = page.evaluate("seen")

    assert (1, 1) == (seen["closes"], proxy.num_cut)
    for answer in seen["answers"]:
        run = server.client.get(f"/v1/runs/{answer['run']}").json()
        assert run["choices"][0]["text"] == answer["text"]
        assert 100 == run["usage"]["completion_tokens"]
    assert 2 == len({answer["run"] for answer in seen["answers"]})
