"""Answers that are cut: taken up after the last frame, each event once; else told in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import httpx2
import pytest
from stand_in import Answer, answering

from streamwell.cli import answer_stream
from streamwell.cli.answer_stream import AnswerStream, ConnectionLost
from streamwell.cli.remote import UnfitServer
from streamwell.core.errors import EngineDied, InvalidRequest

#: What was asked: method, path, Last-Event-ID, Idempotency-Key.
Asked = tuple[str, str, str | None, str | None]

SSE = {"content-type": "text/event-stream", "x-run-id": "r1"}
RESUME = "/v1/runs/{run_id}/events"


def frame(seq: int, text: str) -> str:
    return f'id: r1:{seq}\ndata: {{"text": "{text}"}}\n\n'


DONE = 'id: r1:9\nevent: done\ndata: {"finish_reason": "stop"}\n\n'
LEAVING = 'data: {"error": {"message": "shutting down", "code": "shutting_down"}}\n\n'
BUSY: Answer = (503, {"retry-after": "2"}, '{"error": {"message": "loading"}}')


@contextmanager
def serving(*answers: Answer) -> Iterator[tuple[httpx2.Client, list[Asked]]]:
    """A server that gives one answer after the other, and a client of it."""
    waiting, asked = list(answers), list[Asked]()

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        names = ("last-event-id", "idempotency-key")
        asked.append((request.command, request.path, *(request.headers[name] for name in names)))
        return waiting.pop(0)

    with (
        answering(answer) as base_url,
        httpx2.Client(base_url=base_url, verify=False, timeout=10) as client,
    ):
        yield client, asked


def texts_of(stream: AnswerStream) -> list[str]:
    return [payload.get("text", "") for payload in stream]


def start(client: httpx2.Client) -> AnswerStream:
    return AnswerStream(client, "/v1/runs", {"stream": True}, resume_path=RESUME)


def test_a_cut_answer_is_taken_up_after_its_last_frame() -> None:
    """By its id, through a server that is busy, and one that leaves; every text comes once."""
    cut = SSE | {"content-length": "1000"}
    with serving(
        (200, cut, frame(1, "a") + frame(2, "b") + "id: r1:3\ndata: {"),
        BUSY,
        (200, SSE, frame(3, "c") + LEAVING),
        (200, SSE, frame(4, "d") + DONE),
    ) as (client, asked):
        stream = start(client)
        assert ["a", "b", "c", "d", ""] == texts_of(stream)

    assert "r1" == stream.run_id
    events = "/v1/runs/r1/events"
    assert ("POST", "/v1/runs", None) == asked[0][:3]
    assert asked[0][3]
    assert [("GET", events, place, None) for place in ("r1:2", "r1:2", "r1:3")] == asked[1:]


def test_a_connection_that_was_silent_for_long_is_taken_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Patience begins when it is given up, and not with its last word."""

    class Clock:
        now_s = 0.0

        def monotonic(self) -> float:
            return self.now_s

        def sleep(self, pause_s: float) -> None:
            self.now_s += pause_s

    clock = Clock()
    monkeypatch.setattr(answer_stream, "time", clock)
    cut = SSE | {"content-length": "1000"}
    with serving((200, cut, frame(1, "a")), (200, SSE, frame(2, "b") + DONE)) as (client, _):
        texts = []
        for payload in start(client):
            texts.append(payload.get("text"))
            clock.now_s += 2 * answer_stream.PATIENCE_S

    assert ["a", "b", None] == texts


def test_a_request_that_got_no_answer_is_sent_again_under_its_key() -> None:
    """The key makes it the same run; the connection broke before the run had a name."""
    with serving(BUSY, (200, SSE, frame(1, "a") + DONE)) as (client, asked):
        assert ["a", ""] == texts_of(start(client))

    assert 1 == len(set(asked))


def test_a_run_of_somebody_else_is_followed_from_its_beginning() -> None:
    """And one whose end has been seen is over: 204."""
    with serving((200, SSE, frame(1, "a")), (204, {}, "")) as (client, asked):
        assert ["a"] == texts_of(AnswerStream.of_run(client, "r1"))

    begin = "/v1/runs/r1/events?starting_after=-1"
    assert [("GET", begin, None, None), ("GET", begin[:18], "r1:1", None)] == asked


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((404, {}, '{"error": {"message": "no such run"}}'), InvalidRequest("no such run")),
        ((200, SSE, "id: r1:5\n" + LEAVING), EngineDied("shutting down")),
    ],
    ids=["refused", "failed"],
)
def test_what_the_server_says_of_the_run_is_final(answer: Answer, error: Exception) -> None:
    """A refusal, and an error that is in the run's log, are told and not tried again."""
    with serving(answer) as (client, asked), pytest.raises(type(error), match=f"^{error}$"):
        texts_of(start(client))

    assert 1 == len(asked)


def test_a_proxy_whose_server_is_away_is_asked_again() -> None:
    """Once the run is known; before, it may be anybody's error."""
    away: Answer = (502, {"content-type": "text/html"}, "<h1>Bad Gateway</h1>")
    with serving((200, SSE, frame(1, "a")), away, (200, SSE, DONE)) as (client, asked):
        assert ["a", ""] == texts_of(start(client))

    assert 3 == len(asked)
    with serving(away) as (client, _), pytest.raises(UnfitServer, match="with 502"):
        texts_of(start(client))


def test_a_run_that_the_server_does_not_know_any_more_broke_off() -> None:
    """It was no wrong request: that is told apart, and not tried again."""
    forgotten: Answer = (404, {}, '{"error": {"message": "no such run"}}')
    with (
        serving((200, SSE, frame(1, "a")), forgotten) as (client, _),
        pytest.raises(ConnectionLost, match=r"^the answer broke off: no such run$"),
    ):
        texts_of(start(client))


def test_what_a_server_says_cannot_control_the_terminal() -> None:
    """Its errors are shown on it."""
    refused: Answer = (400, {}, r'{"error": {"message": "not\u001b[31m\nso"}}')
    with serving(refused) as (client, _), pytest.raises(InvalidRequest, match=r"^not␛\[31m so$"):
        texts_of(start(client))


def test_patience_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stays away: one line, which says how to go on."""
    monkeypatch.setattr(answer_stream, "PATIENCE_S", 0.0)
    hint = r"when the server is back, `streamwell runs follow r1 --url \S+` goes on"
    with (
        serving((200, SSE, frame(1, "a"))) as (client, _),
        pytest.raises(ConnectionLost, match=rf"broke off: .*closed; {hint}$"),
    ):
        texts_of(start(client))


def test_servers_of_another_make_are_not_asked_again() -> None:
    """Without a run there is nothing to take up; a stream has ended if it says so."""
    foreign = {"content-type": "text/event-stream"}
    whole = 'data: {"text": "a"}\n\ndata: [DONE]\n\n'
    with serving((200, foreign, whole)) as (client, _):
        assert ["a"] == texts_of(start(client))
    for body in ("", 'data: {"text": "a"}\n\n', whole.removesuffix("\n")):
        with (
            serving((200, foreign, body)) as (client, asked),
            pytest.raises(ConnectionLost, match=r"^the answer broke off: "),
        ):
            texts_of(start(client))
        assert 1 == len(asked)
    cut = foreign | {"content-length": "1000"}
    with (
        serving((200, cut, 'data: {"text": "a"}\n\n')) as (client, asked),
        pytest.raises(httpx2.TransportError),
    ):
        texts_of(start(client))

    assert 1 == len(asked)
