"""Seed 001, server-sent events: `/generate-stream`."""

from __future__ import annotations

from itertools import accumulate
from urllib.parse import urlencode

import pytest
import requests
from harness import DEADLINE_S, HOST, ServerProcess, frames_of
from websockets.sync.client import connect
from wire import RunExample, frames_with, run_text, texts_of

pytestmark = pytest.mark.slow

BODY = {"prompt": "How are you?", "temperature": 0.7, "max_tokens": 20, "seed": 3}


def _post(server: ServerProcess, **fields: object) -> requests.Response:
    url = f"{server.url}/generate-stream"
    return requests.post(url, json=BODY | fields, stream=True, timeout=60)


def _get(server: ServerProcess, path: str = "", **options: object) -> requests.Response:
    url = f"{server.url}/generate-stream{path}"
    return requests.get(url, stream=True, timeout=60, **options)  # type: ignore[arg-type]


def test_req_10_the_same_answer_on_every_road(brooklet: ServerProcess) -> None:
    """Request and response, WebSocket, server-sent events and plain text give one text."""
    events = texts_of(frames_with(_post(brooklet)))
    plain = requests.post(f"{brooklet.url}/generate", json=BODY, timeout=60).text
    messages = [{"role": "user", "content": BODY["prompt"]}]
    whole = brooklet.text({**BODY, "prompt": None, "messages": messages}, "/v1/chat/completions")

    fields = {name: value for name, value in BODY.items() if name != "prompt"}
    url = f"ws://{HOST}:{brooklet.port}/?{urlencode(fields)}"
    with connect(url, proxy=None, open_timeout=DEADLINE_S) as socket:
        socket.send(str(BODY["prompt"]))
        frames = list(iter(lambda: socket.recv(DEADLINE_S), "<<Response Finished>>"))

    assert whole == "".join(events) == plain == "".join(map(str, frames))


def test_req_12_the_frames(brooklet: ServerProcess) -> None:
    """`data: {"text": …}` for each piece, each with an id, and `data: [DONE]` in the end."""
    frames = frames_with(response := _post(brooklet))
    run_id = response.headers["x-run-id"]

    assert texts_of(frames)
    assert all(str(frame.id).startswith(f"{run_id}:") for frame in frames)
    assert {"text"} == set(frames[0].json)
    assert {"text": "", "finish_reason": frames[-2].json["finish_reason"]} == frames[-2].json


def test_req_13_a_post_starts_and_a_get_streams(scripted: ServerProcess) -> None:
    """The run that a POST started can be followed by GET from any place, by any number at once."""
    with _post(scripted, max_tokens=60) as response:
        run_id = response.headers["x-run-id"]
        lines = response.iter_lines(decode_unicode=True)
        beginning = [frame for frame, _ in zip(frames_of(lines), range(5), strict=False)]
    headers = {"Last-Event-ID": str(beginning[-1].id)}
    rest = frames_with(_get(scripted, f"/{run_id}", headers=headers))
    whole = frames_with(_get(scripted, f"/{run_id}"))

    assert whole == beginning + rest
    assert run_text(scripted, run_id) == "".join(texts_of(whole))


def test_req_13_an_eventsource_needs_a_get_alone(scripted: ServerProcess) -> None:
    """A reconnect with the last id goes on with the run that the first GET started, to a 204."""
    accept = {"Accept": "text/event-stream"}
    params = {"prompt": "How are you?", "max_tokens": 40}
    with _get(scripted, params=params, headers=accept) as response:
        lines = response.iter_lines(decode_unicode=True)
        frames = [frame for frame, _ in zip(frames_of(lines), range(7), strict=False)]
    place = accept | {"Last-Event-ID": str(frames[-1].id)}
    frames += frames_with(_get(scripted, params=params, headers=place))
    end = accept | {"Last-Event-ID": str(frames[-1].id)}

    assert 204 == _get(scripted, params=params, headers=end).status_code
    assert 1 == len({str(frame.id).partition(":")[0] for frame in frames})
    numbers = [int(str(frame.id).partition(":")[2]) for frame in frames]
    assert list(range(1, len(numbers) + 1)) == numbers
    assert "[DONE]" == frames[-1].data


def test_req_15_each_event_is_what_is_new(brooklet: ServerProcess) -> None:
    """No cumulative text, and the request's `temperature` and `max_tokens` count."""
    greedy = {"temperature": 0, "seed": None, "ignore_eos": True, "max_tokens": 30}
    texts = texts_of(frames_with(response := _post(brooklet, **greedy)))
    again = texts_of(frames_with(_post(brooklet, **greedy)))
    run = brooklet.client.get(f"/v1/runs/{response.headers['x-run-id']}").json()

    assert "".join(texts) == "".join(again)
    assert 30 == run["usage"]["completion_tokens"]
    assert run["choices"][0]["text"] == "".join(texts)
    so_far = list(accumulate(texts))[1:]  # a first word may come twice
    assert not any(
        after.startswith(before) for before, after in zip(so_far, texts[2:], strict=False)
    )


def test_req_15_an_error_is_no_empty_stream(brooklet: ServerProcess) -> None:
    """What is wrong gets an error body that names the field, never a 200 with nothing in it."""
    for fields, param in (({"prompt": ""}, "prompt"), ({"max_tokens": 0}, "max_tokens")):
        response = _post(brooklet, **fields)
        assert (400, param) == (response.status_code, response.json()["error"]["param"])
    assert 404 == _get(brooklet, "/run-none").status_code


def test_the_client_program(brooklet: ServerProcess, run_example: RunExample) -> None:
    """`examples/generate_stream.py` prints text, and no frames."""
    output = run_example("generate_stream.py", brooklet.url, "Hello!")

    assert output.strip()
    assert "data:" not in output
