"""Seed 000, a FastAPI server and a queue: `/query-stream/`."""

from __future__ import annotations

import ast
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from harness import ServerProcess, eventually
from wire import RunExample, frames_in, frames_with, run_text, texts_of

import streamwell

pytestmark = pytest.mark.slow

NUM_READERS = 32
SOURCE = Path(streamwell.__file__).parent
#: Whoever waits for a time: a comment after silence, the last turn of a server that ends, and a
#: run that is handed over, for one turn of the loop.
WAITING = {("sse.py", "_ping"), ("runs.py", "drain"), ("shared_runs.py", "let_go")}


def _query(server: ServerProcess, **params: object) -> requests.Response:
    return requests.get(f"{server.url}/query-stream/", params=params, stream=True, timeout=60)


def test_req_01_a_query_is_streamed(brooklet: ServerProcess) -> None:
    """`GET /query-stream/?query=` is an event stream whose text is that of its run; so is POST."""
    fields = {"query": "Who are you?", "max_tokens": 12, "seed": 1}
    got = frames_with(response := _query(brooklet, **fields))
    posted = requests.post(f"{brooklet.url}/query-stream/", json=fields, timeout=60)

    assert response.headers["content-type"].startswith("text/event-stream")
    texts = texts_of(got)
    assert texts
    assert run_text(brooklet, response.headers["x-run-id"]) == "".join(texts)
    assert "".join(texts) == "".join(texts_of(frames_in(posted.content.decode())))


def test_req_02_a_stream_without_a_model(scripted: ServerProcess) -> None:
    """The scripted engine streams with nothing loaded: the same query, the same values."""
    first, again = (
        "".join(texts_of(frames_with(_query(scripted, query="20", seed=7)))) for _ in range(2)
    )

    assert first == again
    assert len(first) > 32


def test_req_04_the_template_and_settings_of_the_article(scripted: ServerProcess) -> None:
    """The preset `human-assistant` puts its marks around the query; 64 tokens, temperature 0.1."""
    run, named, bare = (
        _run(scripted, query="Who are you?", seed=1, **fields)
        for fields in ({}, {"preset": "human-assistant"}, {"preset": "plain", "max_tokens": 64})
    )

    assert "length" == run["choices"][0]["finish_reason"]
    assert 64 == run["usage"]["completion_tokens"]
    assert run["choices"] == named["choices"] != bare["choices"]
    assert run["usage"]["prompt_tokens"] > bare["usage"]["prompt_tokens"] + 20


def _run(server: ServerProcess, **params: object) -> dict[str, Any]:
    """The run behind a query, once it has ended."""
    response = _query(server, **params)
    frames_with(response)
    run: dict[str, Any] = server.client.get(f"/v1/runs/{response.headers['x-run-id']}").json()
    return run


def test_req_06_the_client_program(brooklet: ServerProcess, run_example: RunExample) -> None:
    """`requests.get(…, stream=True)` and `iter_content(1024)` see all frames up to `[DONE]`."""
    output = run_example("query_stream.py", brooklet.url, "Hello!")

    assert texts_of(frames_in(output))
    assert len(re.findall(r"^id: run-\w+:\d+$", output, re.MULTILINE)) >= 3


def test_req_07_no_piece_ends_within_a_character(scripted: ServerProcess) -> None:
    """Every frame is whole text, however many tokens a character takes."""
    frames = frames_with(response := _query(scripted, query="20", max_tokens=200))
    text = "".join(texts_of(frames))

    assert run_text(scripted, response.headers["x-run-id"]) == text
    assert any(len(char.encode()) > 1 for char in text)


def test_req_09_no_reader_gets_what_is_another_s(scripted: ServerProcess) -> None:
    """No shared queue: 32 readers at the same time, each with the text of its own query, whole."""

    def ask(number: int) -> tuple[str, str]:
        response = _query(scripted, query=f"number {number}", seed=number, max_tokens=40)
        frames = frames_with(response)
        ids = {str(frame.id).partition(":")[0] for frame in frames}
        assert {response.headers["x-run-id"]} == ids
        return ids.pop(), "".join(texts_of(frames))

    with ThreadPoolExecutor(NUM_READERS) as readers:
        together = list(readers.map(ask, range(NUM_READERS)))

    assert NUM_READERS == len({run_id for run_id, _ in together})
    assert [text for _, text in together] == [run_text(scripted, run_id) for run_id, _ in together]
    assert [ask(number)[1] for number in (0, 9, 31)] == [together[n][1] for n in (0, 9, 31)]
    assert len({text for _, text in together}) > NUM_READERS // 2


def test_req_09_whoever_leaves_is_generated_for_no_longer(scripted: ServerProcess) -> None:
    """The engine stops with the connection, and after the grace time the run is cancelled."""
    with _query(scripted, query="a story", max_tokens=3000) as response:
        run_id = response.headers["x-run-id"]
        next(response.iter_lines())
    eventually(scripted.is_idle, "nothing is generated any more")
    run = f"/v1/runs/{run_id}"
    eventually(lambda: scripted.client.get(run).json()["status"] == "cancelled", "it is cancelled")

    assert scripted.client.get(run).json()["last_seq"] < 3000


def test_req_09_nothing_sleeps_per_token() -> None:
    """From the engine's message to the socket nothing polls a queue or waits for a time."""
    found = {
        (path.name, function.name)
        for room in ("server", "service", "text")
        for path in (SOURCE / room).rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and re.search(r"\b(sleep|get_nowait|empty)\(", ast.unparse(function))
    }

    assert WAITING == found
