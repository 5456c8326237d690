"""The engine process is killed: the server stays, says so, and has a new one soon."""

from __future__ import annotations

import threading

import psutil
import pytest
from harness import ServerProcess, eventually

pytestmark = pytest.mark.slow

LONG = {"prompt": "Once upon a time", "max_tokens": 2000, "ignore_eos": True, "temperature": 0}


def _engine(server: ServerProcess) -> psutil.Process:
    (engine,) = [
        child for child in server.children() if "streamwell.engine.process" in child.cmdline()
    ]
    return engine


def _is_not_ready(server: ServerProcess) -> bool:
    response = server.client.get("/ready")
    return response.status_code == 503 and bool(response.headers["retry-after"])


def test_a_killed_engine_costs_a_pause(small: ServerProcess) -> None:
    """A live stream and a waiting answer go on with the next engine; no token lost or repeated."""
    eventually(small.is_idle, "others are done")
    alone = small.text(LONG)
    engine = _engine(small)
    answers: list[str] = []
    whole = threading.Thread(target=lambda: answers.append(small.text(LONG)))
    with small.stream(LONG) as stream:
        frames = [next(stream) for _ in range(3)]
        whole.start()
        eventually(lambda: small.metrics()["requests_running"] == 2, "both are generated")
        engine.kill()
        eventually(lambda: _is_not_ready(small), "the server says that it has no engine")
        refused = small.post("/v1/completions", LONG)
        frames += stream
    whole.join()

    assert (503, "engine_restarting") == (refused.status_code, refused.json()["error"]["code"])
    assert refused.headers["retry-after"]
    assert [alone, alone] == [answers[0], "".join(frame.text for frame in frames)]
    seqs = [int(str(frame.id).rsplit(":", 1)[1]) for frame in frames]
    assert list(range(len(seqs))) == seqs
    assert engine.pid != _engine(small).pid
    eventually(small.is_idle, "the dead engine's requests are forgotten")
