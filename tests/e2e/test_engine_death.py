"""The engine process is killed: the server stays, says so, and has a new one soon."""

from __future__ import annotations

import threading
from typing import Any

import psutil
import pytest
from harness import Frame, ServerProcess, eventually

pytestmark = pytest.mark.slow

ENDLESS = {"prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True}


def _engine(server: ServerProcess) -> psutil.Process:
    (engine,) = [
        child for child in server.children() if "streamwell.engine.process" in child.cmdline()
    ]
    return engine


def _is_not_ready(server: ServerProcess) -> bool:
    response = server.client.get("/ready")
    return response.status_code == 503 and bool(response.headers["retry-after"])


def _check_broken(frames: list[Frame]) -> None:
    """Exactly one error, at the end, in an envelope that clients know, and no `[DONE]`."""
    errors = [frame.json["error"] for frame in frames if "error" in frame.json]
    assert 1 == len(errors)
    assert "error" in frames[-1].json
    assert ("server_error", "engine_error") == (errors[0]["type"], errors[0]["code"])
    assert all(frame.finish_reason is None for frame in frames)
    seqs = [int(str(frame.id).rsplit(":", 1)[1]) for frame in frames]
    assert sorted(seqs) == seqs
    assert len(set(seqs)) == len(seqs)


def test_a_killed_engine_takes_no_connection_down(small: ServerProcess) -> None:
    """A live stream ends with one error, a waiting answer with 500, and the next request works."""
    eventually(small.is_idle, "others are done")
    engine = _engine(small)
    answers: list[Any] = []
    whole = threading.Thread(target=lambda: answers.append(small.post("/v1/completions", ENDLESS)))
    with small.stream(ENDLESS) as stream:
        frames = [next(stream) for _ in range(3)]
        whole.start()
        eventually(lambda: small.metrics()["requests_running"] == 2, "both are generated")
        engine.kill()
        frames += stream
    whole.join()

    _check_broken(frames)
    assert 500 == answers[0].status_code
    assert "engine_error" == answers[0].json()["error"]["code"]
    eventually(lambda: _is_not_ready(small), "the server says that it has no engine")
    refused = small.post("/v1/completions", ENDLESS)
    assert (503, "engine_restarting") == (refused.status_code, refused.json()["error"]["code"])
    assert refused.headers["retry-after"]
    assert 200 == small.client.get("/live").status_code
    small.wait_until_ready()
    assert engine.pid != _engine(small).pid
    assert small.text(ENDLESS | {"max_tokens": 5})
    eventually(small.is_idle, "the dead engine's requests are forgotten")
