"""`/v1/runs`, `/v1/stream`, tickets and resuming, over a real socket."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from harness import ServerProcess, StartServer, eventually

pytestmark = pytest.mark.slow

EVENTS = {"accept": "text/event-stream"}
PROMPT = {"prompt": "Hello", "max_tokens": 30, "seed": 3}


def events(response: httpx2.Response) -> Iterator[dict[str, str]]:
    """The fields of each frame, as an `EventSource` sees them."""
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        else:
            yield fields
            fields = {}


def follow(
    server: ServerProcess, path: str, headers: dict[str, str] | None = None, count: int = 10_000
) -> list[dict[str, str]]:
    """The first frames of a stream."""
    with server.client.stream("GET", path, headers=EVENTS | (headers or {})) as response:
        assert 200 == response.status_code, response.read()
        return [frame for frame, _ in zip(events(response), range(count), strict=False)]


def text_of(frames: list[dict[str, str]]) -> str:
    texts = [json.loads(f["data"])["text"] for f in frames if "data" in f and "event" not in f]
    return "".join(texts)


def test_an_eventsource_starts_a_run_and_goes_on_with_it(scripted: ServerProcess) -> None:
    """The same URL with the id of the last event: the rest of the same run; then 204."""
    path = "/v1/stream?prompt=Hello&max_tokens=30&seed=3"
    whole = follow(scripted, path)
    first = follow(scripted, path, count=7)
    rest = follow(scripted, path, {"Last-Event-ID": first[-1]["id"]})

    assert text_of(whole) == text_of(first + rest)
    assert "1000" == whole[0]["retry"]
    assert ("done", "length") == (rest[-1]["event"], json.loads(rest[-1]["data"])["finish_reason"])
    run_id = first[0]["id"].partition(":")[0]
    frames = first + rest
    assert [f"{run_id}:{seq}" for seq in range(len(frames))] == [frame["id"] for frame in frames]
    over = scripted.client.get(path, headers=EVENTS | {"Last-Event-ID": frames[-1]["id"]})
    assert (204, b"") == (over.status_code, over.content)


def test_a_run_is_started_looked_at_followed_and_deleted(scripted: ServerProcess) -> None:
    """It waits for its reader, unless it is in the background; its object tells where it stands."""
    started = scripted.post("/v1/runs", PROMPT)
    run = started.json()
    assert (201, f"/v1/runs/{run['id']}") == (started.status_code, started.headers["location"])
    eventually(
        lambda: scripted.client.get(f"/v1/runs/{run['id']}").json()["status"] == "paused",
        "the run waits for a reader",
    )
    frames = follow(scripted, run["events_url"])
    ended = scripted.client.get(f"/v1/runs/{run['id']}").json()

    assert ("completed", "length") == (ended["status"], ended["choices"][0]["finish_reason"])
    assert text_of(frames) == ended["choices"][0]["text"]
    assert ended["usage"]["completion_tokens"] == 30
    alone = scripted.post("/v1/runs", PROMPT | {"background": True}).json()
    again = follow(scripted, alone["events_url"] + "?starting_after=-1")
    assert text_of(frames) == text_of(again)
    assert scripted.client.delete(f"/v1/runs/{run['id']}").json()["deleted"]
    assert 404 == scripted.client.get(f"/v1/runs/{run['id']}").status_code


def test_cancel_ends_a_run_for_all(scripted: ServerProcess) -> None:
    """Twice is once; the object says so, and the stream ends well."""
    endless = {"prompt": "Hello", "max_tokens": 3000, "background": True}
    run = scripted.post("/v1/runs", endless).json()
    with scripted.client.stream("GET", run["events_url"], headers=EVENTS) as response:
        frames = events(response)
        next(frames)
        answers = [scripted.post(f"/v1/runs/{run['id']}/cancel", {}).json() for _ in range(2)]
        last = list(frames)[-1]

    assert ["cancelled"] * 2 == [answer["status"] for answer in answers]
    assert "cancelled" == json.loads(last["data"])["finish_reason"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_chat_completion_can_be_had_again(scripted: ServerProcess, stream: bool) -> None:
    """By its id: as a stream from any place on, or whole."""
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 20, "seed": 1}
    with scripted.stream(body, "/v1/chat/completions") as frames:
        all_frames = list(frames)
    run_id = all_frames[0].json["id"]
    text = "".join(frame.text for frame in all_frames)
    path = f"/v1/chat/completions/{run_id}"
    if stream:
        again = follow(scripted, f"{path}?stream=true&starting_after=4")
        assert [frame.data for frame in all_frames[5:]] == [frame["data"] for frame in again]
    else:
        answer = scripted.client.get(path).json()
        assert (run_id, text) == (answer["id"], answer["choices"][0]["message"]["content"])


BAD_PLACES = [
    ({"Last-Event-ID": "garbage"}, "", "Last-Event-ID"),
    ({"Last-Event-ID": "run-0:1"}, "", "Last-Event-ID"),
    ({"Last-Event-ID": "{run}:99"}, "", "Last-Event-ID"),
    ({"Last-Event-ID": "{run}:99.2"}, "?starting_after=1", "Last-Event-ID"),
    ({}, "?starting_after=99", "starting_after"),
    ({}, "?starting_after=-2", "starting_after"),
    ({}, f"?starting_after={2**63}", "starting_after"),
    ({}, "?starting_after=x", "starting_after"),
]


@pytest.mark.parametrize(("headers", "query", "param"), BAD_PLACES)
def test_a_place_that_cannot_be_is_refused(
    scripted: ServerProcess, headers: dict[str, str], query: str, param: str
) -> None:
    """Garbage, another run's, the future: 400 with the name of the field."""
    run = scripted.post("/v1/runs", PROMPT | {"background": True}).json()
    follow(scripted, run["events_url"])
    headers = {name: value.format(run=run["id"]) for name, value in headers.items()}
    answer = scripted.client.get(run["events_url"] + query, headers=headers)

    assert (400, param) == (answer.status_code, answer.json()["error"]["param"])


BAD_QUERIES = [
    ("", "prompt"),
    ("prompt=a&temperature=hot", "temperature"),
    ("prompt=a&max_tokens=0", "max_tokens"),
    ("prompt=a&max_tokens=9e9", "max_tokens"),
    ("prompt=a&raw=perhaps", "raw"),
    ("prompt=a&logprobs=true", "logprobs"),
]


@pytest.mark.parametrize(("query", "param"), BAD_QUERIES)
def test_a_bad_query_is_refused(scripted: ServerProcess, query: str, param: str) -> None:
    """400 with the name of the field, as for a body."""
    answer = scripted.client.get(f"/v1/stream?{query}")
    error = answer.json()["error"]

    assert 400 == answer.status_code
    assert param == error["param"] or param in error["message"]


def test_a_key_names_a_request(scripted: ServerProcess) -> None:
    """The same key and body is the same run, streamed or not; another body is 409."""
    headers = {"Idempotency-Key": "k-1"}
    body: dict[str, Any] = {"prompt": "Hello", "max_tokens": 9, "seed": 5}
    first, again = (scripted.post("/v1/completions", body, headers=headers) for _ in range(2))
    other = scripted.post("/v1/completions", body | {"max_tokens": 8}, headers=headers)
    bad = scripted.post("/v1/completions", body, headers={"Idempotency-Key": "x" * 256})

    assert first.json() == again.json()
    assert (409, "idempotency_key_reused") == (other.status_code, other.json()["error"]["code"])
    assert (400, "Idempotency-Key") == (bad.status_code, bad.json()["error"]["param"])


def test_tickets_open_streams_and_nothing_else(keyed: ServerProcess) -> None:
    """A page without a key may follow; it may not post, list or cancel."""
    key = {"authorization": "Bearer sk-one"}
    ticket = keyed.post("/v1/tickets", {"lifetime_s": 60}, headers=key).json()["ticket"]
    path = f"/v1/stream?prompt=Hello&max_tokens=9&ticket={ticket}"
    frames = follow(keyed, path)
    run_id = frames[0]["id"].partition(":")[0]
    assert frames == follow(keyed, f"/v1/runs/{run_id}/events?ticket={ticket}")
    closed = [
        keyed.client.get(f"/v1/models?ticket={ticket}"),
        keyed.post(f"/v1/runs?ticket={ticket}", PROMPT),
        keyed.post(f"/v1/runs/{run_id}/cancel?ticket={ticket}", {}),
        keyed.client.get(re.sub("ticket=.", "ticket=!", path)),
    ]
    assert [401] * 4 == [answer.status_code for answer in closed]


def test_pages_of_other_sites_start_nothing(scripted: ServerProcess) -> None:
    """Without keys the browser's own word for where a request comes from is what there is."""
    path = "/v1/stream?prompt=Hello&max_tokens=2"
    for site, status in (("cross-site", 403), ("same-origin", 200), ("none", 200)):
        answer = scripted.client.get(path, headers={"sec-fetch-site": site})
        assert status == answer.status_code


@pytest.mark.parametrize("run_id", ["%00", "run-1%00", "x" * 81, "%F0%9F%98%80", "..%2fmodels"])
def test_what_can_be_no_id_is_404(scripted: ServerProcess, run_id: str) -> None:
    """It is not looked for."""
    for path in (f"/v1/runs/{run_id}", f"/v1/conversations/{run_id}", f"/v1/responses/{run_id}"):
        assert 404 == scripted.client.get(path).status_code


def test_a_live_server_takes_over_from_one_that_is_gone(
    scripted: ServerProcess, start_server: StartServer
) -> None:
    """Two on one log: what one drives is 503 at the other, until the first is killed."""
    flags = ("--engine", "scripted", "--scripted-step-s", "0.02")
    first = start_server(*flags, data_dir=scripted.database_path.parent)
    first.wait_until_ready()
    whole = scripted.text(PROMPT | {"max_tokens": 300})
    body = PROMPT | {"max_tokens": 300, "background": True, "raw": True}
    run = first.post("/v1/runs", body).json()
    seen = follow(first, run["events_url"], count=5)
    for answer in (
        scripted.client.get(run["events_url"]),
        scripted.post(f"/v1/runs/{run['id']}/cancel", {}),
        scripted.client.delete(f"/v1/runs/{run['id']}"),
    ):
        assert (503, "run_elsewhere") == (answer.status_code, answer.json()["error"]["code"])
        assert answer.headers["retry-after"]
    first.signal(signal.SIGKILL)
    first.wait()
    eventually(
        lambda: scripted.client.get(run["events_url"]).status_code == 200,
        "the other has taken over",
    )
    seen += follow(scripted, run["events_url"], {"Last-Event-ID": seen[-1]["id"]})
    assert whole == text_of(seen)
    assert [f"{run['id']}:{seq}" for seq in range(len(seen))] == [frame["id"] for frame in seen]
