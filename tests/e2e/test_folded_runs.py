"""A run whose log has been folded is shown as before, byte for byte."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from harness import ServerProcess, StartServer, eventually

pytestmark = pytest.mark.slow

BODIES = {
    "/v1/completions": {"prompt": ["Hello", "Once"], "max_tokens": 40, "seed": 1},
    "/v1/responses": {"input": "Hello", "max_output_tokens": 40, "seed": 1},
}


def _run(server: ServerProcess, path: str) -> str:
    response = server.post(path, BODIES[path])
    assert 200 == response.status_code, response.text
    run_id: str = response.json()["id"]
    return run_id


def _shown(server: ServerProcess, path: str, run_id: str) -> list[bytes]:
    """What there is to see of a run: whole, and its streams from some places on."""
    queries = ["", "?stream=true", "?stream=true&starting_after=3"]
    routes = [f"{path}/{run_id}{query}" for query in queries]
    routes += [f"/v1/runs/{run_id}", f"/v1/runs/{run_id}/events?stream=true&starting_after=2"]
    ids = [{}, {"Last-Event-ID": f"{run_id}:0"}, {"Last-Event-ID": f"{run_id}:4"}]
    answers = [server.client.get(route, headers=headers) for route in routes for headers in ids]
    assert {200} == {answer.status_code for answer in answers}
    return [answer.content for answer in answers]


def _num_rows(server: ServerProcess, run_id: str) -> int:
    query = "SELECT count(*) FROM run_events WHERE run_id = ?"
    with closing(sqlite3.connect(server.database_path)) as database:
        return int(database.execute(query, [run_id]).fetchone()[0])


def test_a_folded_run_is_shown_as_before(
    scripted: ServerProcess, start_server: StartServer
) -> None:
    """By a server that finds it folded, whatever the route and the place."""
    runs = {path: _run(scripted, path) for path in BODIES}
    shown = {path: _shown(scripted, path, run_id) for path, run_id in runs.items()}
    assert all(_num_rows(scripted, run_id) > 5 for run_id in runs.values())

    # a server folds when it starts, and without a grace time all that has ended
    flags = ("--engine", "scripted", "--resume-grace-s", "0")
    other = start_server(*flags, data_dir=scripted.database_path.parent)
    other.wait_until_ready()
    for path, run_id in runs.items():
        eventually(lambda run_id=run_id: _num_rows(other, run_id) == 1, "the run is folded")
        assert shown[path] == _shown(other, path, run_id)
