"""While the model loads the server answers already: what it is, and when to come back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from harness import ServerProcess, StartServer, eventually

pytestmark = pytest.mark.slow

BODIES = {
    "/v1/completions": {"prompt": "Hello"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hello!"}]},
}


@pytest.fixture(scope="module")
def loading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose port is open and whose model takes for ever."""
    folder = tmp_path_factory.mktemp("loading")
    flags = ("--engine", "scripted", "--scripted-load-s", "3600")
    flags += ("--served-model-name", "a/b", "--served-model-name", "c")
    with closing(ServerProcess(folder, *flags)) as server:
        eventually(server.is_open, "the port is open", timeout_s=120)
        eventually(lambda: _status(server) != "starting", "the application is there", timeout_s=120)
        yield server


def _status(server: ServerProcess) -> str:
    return str(server.client.get("/ready").json()["status"])


@pytest.mark.parametrize("path", ["/ready", "/health"])
def test_readiness_tells_the_stage(loading: ServerProcess, path: str) -> None:
    """503 with the model, the stage and when to ask again."""
    response = loading.client.get(path)
    body = response.json()

    assert 503 == response.status_code
    assert int(response.headers["retry-after"]) > 0
    assert ("loading", "a/b") == (body["status"], body["model"])
    assert body["stage"]
    assert 0 <= body["progress"] < 1


def test_the_server_is_alive(loading: ServerProcess) -> None:
    """Loading is no reason to be restarted."""
    assert 200 == loading.client.get("/live").status_code


def test_models_are_listed(loading: ServerProcess) -> None:
    """Clients verify a server by its model list; names may contain slashes."""
    cards = loading.client.get("/v1/models").json()["data"]

    assert [("a/b", "loading"), ("c", "loading")] == [(c["id"], c["status"]) for c in cards]
    assert cards[0] == loading.client.get("/v1/models/a/b").json()
    assert 404 == loading.client.get("/v1/models/").status_code


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [True, False])
def test_requests_are_told_to_come_back(loading: ServerProcess, path: str, stream: bool) -> None:
    """503 `model_loading` with `Retry-After`, as a status and not within a stream."""
    response = loading.post(path, BODIES[path] | {"stream": stream})

    assert (503, "model_loading") == (response.status_code, response.json()["error"]["code"])
    assert int(response.headers["retry-after"]) > 0


def test_bad_input_is_bad_also_while_loading(loading: ServerProcess) -> None:
    """What will never be right is refused as such at once."""
    bad = loading.post("/v1/completions", {"prompt": "Hello", "n": 0})
    unknown = loading.post("/v1/completions", {"prompt": "Hello", "model": "gpt-7"})

    assert (400, 404) == (bad.status_code, unknown.status_code)


def test_ready_when_loaded(start_server: StartServer) -> None:
    """The port is open before the model is there; then `/ready` turns 200 by itself."""
    server = start_server("--engine", "scripted", "--scripted-load-s", "2")
    eventually(server.is_open, "the port is open", timeout_s=120)

    assert 503 == server.client.get("/ready").status_code
    server.wait_until_ready()
    assert server.text({"prompt": "Hello", "max_tokens": 3})
    assert "ready" == server.client.get("/v1/models").json()["data"][0]["status"]
