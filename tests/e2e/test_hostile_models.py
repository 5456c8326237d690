"""A real server on hostile models: it ends with the reason, or serves what can be served."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import pytest
from harness import ServerProcess, StartServer
from hostile_folders import HOSTILE, copy_of_brooklet, make, set_template

pytestmark = pytest.mark.slow

#: One for each process that may see it first: the engine, the tokenizer's and the template's.
CHOSEN = ("pickled_weights", "exponential_pattern", "template_to_the_shell")

#: Means no harm until it is told to.
FICKLE = """{% set said = messages[0].content %}
{% if 'loop' in said %}
{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}
{% elif 'escape' in said %}{{ cycler.__init__.__globals__.os.system('true') }}
{% elif 'flood' in said %}{% for i in range(9999) %}{{ 'x' * 9999 }}{% endfor %}
{% else %}{{ said }}{% endif %}"""


@pytest.mark.parametrize("name", CHOSEN)
def test_a_hostile_model_ends_the_server(
    start_server: StartServer, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    """Exit code 2 and one line that says why; no code of the folder has run."""
    folder = tmp_path_factory.mktemp("hostile") / "model"
    canary = make(name, folder)
    server = start_server(str(folder))

    assert 2 == server.wait()
    reason = server.log().strip().splitlines()[-1]
    assert re.search(HOSTILE[name].says, reason), server.log()
    assert not canary.exists()


@pytest.fixture(scope="module")
def fickle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose chat template is harmless to most conversations; it needs no real engine."""
    base = tmp_path_factory.mktemp("fickle")
    set_template(copy_of_brooklet(base / "model"), FICKLE)
    with closing(ServerProcess(base, str(base / "model"), "--engine", "scripted")) as server:
        server.wait_until_ready()
        yield server


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("loop", "took more than 2 s"),
        ("escape", "unsafe"),
        ("flood", "writes more than"),
    ],
)
def test_a_template_that_turns_hostile_costs_one_request(
    fickle: ServerProcess, word: str, reason: str
) -> None:
    """That request gets 400 with the reason; the server stays, and answers the next one."""
    body = {"messages": [{"role": "user", "content": word}], "max_tokens": 2}
    path = "/v1/chat/completions"

    refused = fickle.post(path, body)
    body["messages"] = [{"role": "user", "content": "Hello!"}]

    assert 400 == refused.status_code
    error = refused.json()["error"]
    assert "messages" == error["param"]
    assert "the chat template of this model was stopped" in error["message"]
    assert reason in error["message"]
    assert fickle.text(body, path)
    assert fickle.text({"prompt": "Hello!", "max_tokens": 2})
