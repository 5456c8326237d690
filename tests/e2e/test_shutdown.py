"""The first signal drains, the second one ends at once; neither leaves anything behind."""

from __future__ import annotations

import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psutil
import pytest
from harness import ServerProcess, StartServer, eventually, frames_of

pytestmark = pytest.mark.slow

#: Long enough to look around while it is streamed; nobody could wait for the endless one.
LONG = {"prompt": "Once upon a time", "max_tokens": 1000, "ignore_eos": True, "seed": 1}
ENDLESS = LONG | {"max_tokens": 2000}


def _is_draining(server: ServerProcess) -> bool:
    response = server.client.get("/ready")
    return response.status_code == 503 and bool(response.headers["retry-after"])


def _ends_of_runs(server: ServerProcess) -> tuple[int, int]:
    """How many runs the log has, and how many of them have ended."""
    with closing(sqlite3.connect(server.database_path)) as database:
        row = database.execute("SELECT count(*), sum(ended) FROM runs").fetchone()
    return int(row[0]), int(row[1])


def test_a_signal_drains(start_server: StartServer) -> None:
    """Live streams and answers end well, new requests get 503, then the process ends with 0."""
    server = start_server()
    server.wait_until_ready()
    alone = server.text(LONG)
    children = server.children()
    with server.stream(LONG) as stream:
        frames = [next(stream)]
        server.signal(signal.SIGTERM)
        eventually(lambda: _is_draining(server), "/ready says that the server drains")
        refused = server.post("/v1/completions", LONG)
        assert 200 == server.client.get("/live").status_code
        frames += stream

    assert (503, "shutting_down") == (refused.status_code, refused.json()["error"]["code"])
    assert int(refused.headers["retry-after"]) > 0
    assert alone == "".join(frame.text for frame in frames)
    assert ("length", "[DONE]") == (frames[-2].finish_reason, frames[-1].data)
    assert 0 == server.wait()
    assert children
    assert [] == [child for child in children if child.is_running()]
    assert (2, 2) == _ends_of_runs(server)
    assert "Traceback" not in server.log()


SCRIPTED = ("--engine", "scripted", "--drain-s", "0.2", "--scripted-step-s")
#: An answer of a hundred tokens takes two seconds, and ten.
SLOW, SLOWER = (*SCRIPTED, "0.02"), (*SCRIPTED, "0.1")


def test_what_takes_too_long_goes_on_after_a_restart(start_server: StartServer) -> None:
    """A stream is told when to come back; the next server on the same log goes on with it."""
    server = start_server(*SLOWER)
    server.wait_until_ready()
    body = ENDLESS | {"max_tokens": 100}
    with server.stream(body) as stream:
        frames = [next(stream)]
        server.signal(signal.SIGTERM)
        frames += stream
    assert 0 == server.wait()
    assert (1, 0) == _ends_of_runs(server)
    *seen, told = frames
    assert ("server_error", "shutting_down") == (
        told.json["error"]["type"],
        told.json["error"]["code"],
    )

    again = start_server(*SLOW, data_dir=server.database_path.parent)
    again.wait_until_ready()
    run_id = str(seen[-1].id).partition(":")[0]
    headers = {"Last-Event-ID": str(seen[-1].id)}
    with again.client.stream(
        "GET", f"/v1/completions/{run_id}?stream=true", headers=headers
    ) as response:
        seen += frames_of(response.iter_lines())
    assert again.text(body) == "".join(frame.text for frame in seen)
    assert "[DONE]" == seen[-1].data


def test_without_a_lasting_log_it_is_cut_with_an_error(start_server: StartServer) -> None:
    """After the drain time a stream gets one error, and the process ends with 0."""
    server = start_server(*SLOW, "--durability", "memory")
    server.wait_until_ready()
    with server.stream(ENDLESS) as stream:
        next(stream)
        server.signal(signal.SIGTERM)
        frames = list(stream)

    assert ["shutting down" in frame.data for frame in frames] == [False] * (len(frames) - 1) + [
        True
    ]
    assert "server_error" == frames[-1].json["error"]["type"]
    assert 0 == server.wait()


def test_a_second_signal_ends_at_once(start_server: StartServer) -> None:
    """Nobody waits for the drain, those who read are told, and no process is left behind."""
    server = start_server("--drain-s", "3600")
    server.wait_until_ready()
    children = server.children()
    with ThreadPoolExecutor() as thread, server.stream(ENDLESS) as stream:
        whole = thread.submit(server.post, "/v1/completions", ENDLESS)
        eventually(lambda: server.metrics()["requests_running"] == 2, "both are generated")
        server.signal(signal.SIGINT)
        eventually(lambda: _is_draining(server), "the server drains")
        server.signal(signal.SIGTERM)
        frames, answer = list(stream), whole.result()
        assert 0 == server.wait(timeout_s=20)

    assert "shutting_down" == frames[-1].json["error"]["code"]
    assert (503, "shutting_down") == (answer.status_code, answer.json()["error"]["code"])
    assert int(answer.headers["retry-after"]) > 0
    assert children
    psutil.wait_procs(children, timeout=10)
    assert [] == [child for child in children if child.is_running()]
    assert "Traceback" not in server.log()


def test_a_killed_server_takes_its_engine_along(start_server: StartServer) -> None:
    """`kill -9` of the server cannot be handled, but its engine process notices and ends."""
    server = start_server()
    children = eventually(server.children, "an engine process is started")
    eventually(server.is_open, "the port is open")
    server.signal(signal.SIGKILL)
    server.wait()
    gone, alive = psutil.wait_procs(children, timeout=20)

    assert [] == alive
    assert gone


@pytest.mark.parametrize("engine", ["transformers", "scripted"])
def test_a_signal_while_loading_ends_the_server(start_server: StartServer, engine: str) -> None:
    """Nobody has to wait for a model that they no longer want."""
    server = start_server("--engine", engine, "--scripted-load-s", "3600")
    eventually(server.is_open, "the port is open")
    children = server.children()
    server.signal(signal.SIGTERM)

    assert 0 == server.wait(timeout_s=30)
    _, alive = psutil.wait_procs(children, timeout=20)
    assert [] == alive
    assert "Traceback" not in server.log()
