"""Seed 003, bots on Ray Serve: `POST /` and the WebSocket `/`."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import requests
from harness import DEADLINE_S, HOST, ServerProcess, eventually
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from wire import RunExample, run_text

pytestmark = pytest.mark.slow

FINISHED = "<<Response Finished>>"


def _connected(server: ServerProcess, query: str = "") -> ClientConnection:
    url = f"ws://{HOST}:{server.port}/?{query}"
    return connect(url, proxy=None, open_timeout=DEADLINE_S)


def _until_finished(socket: ClientConnection) -> list[str]:
    texts = [str(socket.recv(DEADLINE_S))]
    while texts[-1] != FINISHED:
        texts.append(str(socket.recv(DEADLINE_S)))
    return texts[:-1]


def _textbot(server: ServerProcess, prompt: str, **query: object) -> requests.Response:
    params = {"prompt": prompt} | query
    return requests.post(f"{server.url}/", params=params, stream=True, timeout=60)


def test_req_23_a_textbot(brooklet: ServerProcess) -> None:
    """`POST /?prompt=` streams plain text: the answer alone, no prompt and no special tokens."""
    response = _textbot(brooklet, "Tell me a story about dogs.", seed=1, max_tokens=40)
    chunks = list(response.iter_content(chunk_size=None, decode_unicode=True))

    assert response.headers["content-type"].startswith("text/plain")
    text = "".join(chunks)
    assert run_text(brooklet, response.headers["x-run-id"]) == text
    assert "<|" not in text
    assert 200 == brooklet.client.get("/").status_code


def test_req_23_errors_are_error_bodies(brooklet: ServerProcess) -> None:
    """Without a prompt, with a model that is not there: OpenAI's error body, no empty 200."""
    missing = requests.post(f"{brooklet.url}/", timeout=60)
    unknown = _textbot(brooklet, "Hello", model="microsoft/DialoGPT-small")

    assert (400, "prompt") == (missing.status_code, missing.json()["error"]["param"])
    assert (404, "model_not_found") == (unknown.status_code, unknown.json()["error"]["code"])


def test_req_23_the_client_program(brooklet: ServerProcess, run_example: RunExample) -> None:
    """`examples/textbot_client.py` prints the answer."""
    assert run_example("textbot_client.py", brooklet.url).strip()


def test_req_24_a_chatbot_keeps_the_conversation(brooklet: ServerProcess) -> None:
    """Text frames up to the closing one; the second answer is that to the whole conversation."""
    options = {"seed": 2, "max_tokens": 24, "temperature": 0.5}
    query = "&".join(f"{name}={value}" for name, value in options.items())
    prompts = ["My name is Ann.", "What is my name?"]
    answers = []
    with _connected(brooklet, query) as socket:
        for prompt in prompts:
            socket.send(prompt)
            answers.append("".join(_until_finished(socket)))
    said = [prompts[0], answers[0], prompts[1]]
    roles = ["user", "assistant", "user"]
    messages = [{"role": r, "content": c} for r, c in zip(roles, said, strict=True)]

    assert answers[1] == brooklet.text({"messages": messages} | options, "/v1/chat/completions")
    assert answers[0] != ""


def test_req_24_an_answer_goes_on_after_a_cut(scripted: ServerProcess) -> None:
    """By the run's id and the number of frames: every frame once, then the conversation goes on."""
    query = "ids=true&max_tokens=60&seed=1"
    with _connected(scripted, query) as socket:
        socket.send("Space the final")
        named = str(socket.recv(DEADLINE_S))
        frames = [str(socket.recv(DEADLINE_S)) for _ in range(15)]
        socket.close_socket()  # without a word, as a broken network does
    run_id = named.removeprefix("<<Run ").removesuffix(">>")
    with _connected(scripted, f"{query}&run={run_id}&after={len(frames)}") as socket:
        frames += _until_finished(socket)
        socket.send(" These are the voyages")
        assert f"<<Run {run_id}>>" != socket.recv(DEADLINE_S)
        assert _until_finished(socket)

    assert run_text(scripted, run_id) == "".join(frames)
    items = scripted.client.get(f"/v1/responses/{run_id}/input_items").json()["data"]
    assert 1 == len(items)


def test_req_24_the_client_program(brooklet: ServerProcess, run_example: RunExample) -> None:
    """`examples/chatbot_client.py` prints two answers, and no closing frame."""
    output = run_example("chatbot_client.py", f"{HOST}:{brooklet.port}")

    assert 2 == len([part for part in output.split("\n\n") if part.strip()])
    assert FINISHED not in output


def test_req_26_two_terminals_stream_at_the_same_time(scripted: ServerProcess) -> None:
    """Two clients get their chunks in turns, not one after the other."""
    with (
        _textbot(scripted, "one", max_tokens=500) as first,
        _textbot(scripted, "two", max_tokens=500) as second,
    ):
        streams = [response.iter_content(chunk_size=None) for response in (first, second)]
        beginnings = [next(stream) for stream in streams]
        statuses = [_status(scripted, response) for response in (first, second)]
        with ThreadPoolExecutor(2) as readers:
            rests = list(readers.map(b"".join, streams))

    assert ["in_progress", "in_progress"] == statuses
    for response, beginning, rest in zip((first, second), beginnings, rests, strict=True):
        assert run_text(scripted, response.headers["x-run-id"]) == (beginning + rest).decode()


def _status(server: ServerProcess, response: requests.Response) -> str:
    run = server.client.get(f"/v1/runs/{response.headers['x-run-id']}").json()
    return str(run["status"])


def test_req_26_the_log_tells_of_requests_and_of_no_text(scripted: ServerProcess) -> None:
    """A line for each request, and for each bot's client that leaves; never what was said."""
    _textbot(scripted, "a secret of mine", max_tokens=2).close()
    with _connected(scripted, "max_tokens=2") as socket:
        socket.send("another secret of mine")
        _until_finished(socket)
    told = r"chatbot client disconnected +num_answers=1"
    eventually(lambda: re.search(told, scripted.log()), "the log tells that it left")

    log = scripted.log()
    assert re.search(r"request +method=POST path=/ status=200", log)
    assert "secret" not in log


@pytest.mark.parametrize("bot", ["textbot", "chatbot"])
def test_req_27_a_disconnect_cancels(scripted: ServerProcess, bot: str) -> None:
    """The engine stops with the connection; after the grace time the run is cancelled."""
    if bot == "textbot":
        with _textbot(scripted, "a story", max_tokens=3000) as response:
            run_id = response.headers["x-run-id"]
            next(response.iter_content(chunk_size=None))
    else:
        with suppress(ConnectionClosed), _connected(scripted, "ids=true&max_tokens=3000") as socket:
            socket.send("a story")
            named = str(socket.recv(DEADLINE_S))
            run_id = named.removeprefix("<<Run ").removesuffix(">>")
            socket.recv(DEADLINE_S)
            socket.close_socket()
    eventually(scripted.is_idle, "nothing is generated any more")
    run = f"/v1/runs/{run_id}"
    eventually(lambda: scripted.client.get(run).json()["status"] == "cancelled", "it is cancelled")
