"""`/v1/ws` over real sockets, with a client of another make."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from harness import DEADLINE_S, HOST, ServerProcess, StartServer, eventually
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

pytestmark = pytest.mark.slow

SCRIPTED = ("--engine", "scripted", "--scripted-step-s", "0.01")
PROMPT = {"type": "prompt", "prompt": "Once upon a time", "seed": 3}


@contextmanager
def _connected(server: ServerProcess, path: str = "/v1/ws", **options: Any) -> Iterator[Any]:  # noqa: ANN401
    url = f"ws://{HOST}:{server.port}{path}"
    options = {"compression": None, "proxy": None, "open_timeout": DEADLINE_S} | options
    with connect(url, **options) as socket:
        yield socket


def _say(socket: ClientConnection, **message: object) -> None:
    socket.send(json.dumps(message))


def _next(socket: ClientConnection) -> dict[str, Any]:
    frame: dict[str, Any] = json.loads(socket.recv(DEADLINE_S))
    return frame


def _until_end(socket: ClientConnection) -> list[dict[str, Any]]:
    frames = [_next(socket)]
    while frames[-1]["type"] in ("started", "delta"):
        frames.append(_next(socket))
    return frames


def _text(frames: list[dict[str, Any]]) -> str:
    return "".join(frame.get("text", "") for frame in frames)


def _close_code(socket: ClientConnection) -> int | None:
    """Why the server closes; what it sends until then is not looked at."""
    while True:
        try:
            socket.recv(DEADLINE_S)
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else None


def _code_after(server: ServerProcess, send: Callable[[ClientConnection], object]) -> int | None:
    """With what code a new connection is closed when this is sent."""
    with _connected(server) as socket:
        with suppress(ConnectionClosed):  # it may be closed before all is sent
            send(socket)
        return _close_code(socket)


def _cut(socket: ClientConnection) -> None:
    """End the connection as a broken network does, without a word."""
    socket.close_socket()


def test_the_text_is_that_of_http(brooklet: ServerProcess) -> None:
    """The same request with the same seed gives the same text on either road."""
    body = {"messages": [{"role": "user", "content": "Tell me a story."}], "seed": 7}
    body |= {"max_tokens": 60, "temperature": 0.8}
    with _connected(brooklet) as socket:
        _say(socket, type="prompt", **body)
        started, *frames = _until_end(socket)
    again = brooklet.client.get(f"/v1/runs/{started['run']}").json()

    assert "done" == frames[-1]["type"]
    assert brooklet.text(body, "/v1/chat/completions") == _text(frames)
    assert _text(frames) == again["choices"][0]["text"]
    assert frames[-1]["usage"] == again["usage"]


def test_a_connection_that_breaks_again_and_again(scripted: ServerProcess) -> None:
    """Resumed after the last number seen, every frame comes exactly once."""
    frames: list[dict[str, Any]] = []
    message: dict[str, Any] = PROMPT | {"max_tokens": 60}
    while not frames or frames[-1]["type"] != "done":
        with _connected(scripted) as socket:
            _say(socket, **message)
            for _ in range(7):
                frames.append(_next(socket))
                if frames[-1]["type"] == "done":
                    break
            else:
                _cut(socket)
        message = {"type": "resume", "run": frames[-1]["run"], "seq": frames[-1]["seq"]}

    run = scripted.client.get(f"/v1/runs/{frames[0]['run']}").json()
    numbers = [frame["seq"] for frame in frames]
    assert sorted(set(numbers)) == numbers
    assert run["choices"][0]["text"] == _text(frames)
    assert (60, "length") == (run["usage"]["completion_tokens"], frames[-1]["finish_reason"])


def test_who_leaves_stops_the_engine(scripted: ServerProcess) -> None:
    """A connection that breaks pauses its runs; cancelled from another one they end."""
    with _connected(scripted) as socket:
        _say(socket, **PROMPT, max_tokens=4000)
        _say(socket, **PROMPT, max_tokens=4000)
        runs = {_next(socket)["run"] for _ in range(40)}
        _cut(socket)
    eventually(scripted.is_idle, "the engine has no work")
    with _connected(scripted) as socket:
        for run_id in runs:
            assert "paused" == scripted.client.get(f"/v1/runs/{run_id}").json()["status"]
            _say(socket, type="cancel", run=run_id)
            assert (run_id, "cancelled") == _end(_next(socket))

    assert 2 == len(runs)


def _end(frame: dict[str, Any]) -> tuple[str, str]:
    return frame["run"], frame["finish_reason"]


def test_what_is_no_message_ends_the_connection(scripted: ServerProcess) -> None:
    """Each with its code; the server goes on, and its log has no traceback."""
    floods = {
        1003: lambda socket: socket.send(b"{}"),
        1007: lambda socket: socket.send(b'{"type": "\xff"}', text=True),
        1009: lambda socket: socket.send("x" * ((1 << 20) + 1)),
    }
    for code, send in floods.items():
        assert code == _code_after(scripted, send)
    assert 1008 == _code_after(scripted, lambda socket: socket.send(iter(["x"] * 2000)))
    assert 1008 == _code_after(scripted, lambda socket: socket.send(iter([""] * 2000)))
    assert 1008 == _code_after(scripted, lambda socket: [socket.ping() for _ in range(2000)])
    assert 1008 == _code_after(scripted, lambda socket: [socket.pong() for _ in range(2000)])
    assert 200 == scripted.client.get("/live").status_code
    assert "Traceback" not in scripted.log()


def test_a_large_message_is_a_message(scripted: ServerProcess) -> None:
    """Just under the limit, in one frame or in many; that it is too long for the model is told."""
    text = json.dumps(PROMPT | {"prompt": "x" * ((1 << 20) - 200)})
    with _connected(scripted) as socket:
        socket.send(text)
        whole = _next(socket)
        socket.send(text[at : at + 2000] for at in range(0, len(text), 2000))
        in_pieces = _next(socket)

    assert whole == in_pieces
    assert "context_length_exceeded" == whole["error"]["code"]


def test_handshakes_that_are_refused(keyed: ServerProcess) -> None:
    """Pages of other sites, wrong keys and other paths get a status and never a connection."""
    right, wrong = {"x-api-key": "sk-one"}, {"authorization": "Bearer wrong"}
    for status, path, options in (
        (403, "/v1/ws", {"origin": "http://evil.example"}),
        (401, "/v1/ws", {"additional_headers": wrong}),
        (401, "/v1/ws?ticket=a.9999999999.b", {"additional_headers": right}),
        (404, "/v1/completions", {"additional_headers": right}),
        (404, "/v1/ws/other", {"additional_headers": right}),
        (431, "/v1/ws", {"additional_headers": right | {"x-long": "x" * 10_000}}),
    ):
        with pytest.raises(InvalidStatus) as refused, _connected(keyed, path, **options):
            pass
        assert status == refused.value.response.status_code
        if status in (401, 404):
            assert b'"error"' in refused.value.response.body
    assert "ERROR" not in keyed.log()

    ticket = keyed.client.post("/v1/tickets", json={}, headers=right).json()["ticket"]
    with _connected(keyed, f"/v1/ws?ticket={ticket}", origin="http://evil.example") as socket:
        _say(socket, **PROMPT, max_tokens=3)
        assert "done" == _until_end(socket)[-1]["type"]
    assert ticket not in keyed.log()


def test_without_an_upgrade_there_is_no_such_page(scripted: ServerProcess) -> None:
    """A plain GET gets 404."""
    assert 404 == scripted.client.get("/v1/ws").status_code


def test_a_client_that_does_not_read_holds_up_nobody(scripted: ServerProcess) -> None:
    """Its own frames wait for it in the log; others get theirs, and health is answered."""
    with _connected(scripted, max_queue=1) as slow, _connected(scripted) as quick:
        slow.socket.settimeout(None)
        for _ in range(8):
            _say(slow, **PROMPT, max_tokens=300)
        _say(quick, **PROMPT, max_tokens=100)
        quick_frames = _until_end(quick)
        assert 200 == scripted.client.get("/live").status_code
        eventually(scripted.is_idle, "the runs of the slow client are generated")
        texts: dict[str, str] = {}
        num_ended = 0
        while num_ended < 8:
            frame = _next(slow)
            texts[frame["run"]] = texts.get(frame["run"], "") + frame.get("text", "")
            num_ended += frame["type"] == "done"

    assert 100 == len(_text(quick_frames))
    assert {300} == {len(text) for text in texts.values()}
    assert 8 == len(texts)


def test_a_drain_suspends_and_a_new_server_goes_on(start_server: StartServer) -> None:
    """1012 after `suspended`; on the server that comes up again the rest comes exactly once."""
    server = start_server(*SCRIPTED, "--drain-s", "0.2")
    server.wait_until_ready()
    with _connected(server) as socket, _connected(server) as idle:
        _say(socket, **PROMPT, max_tokens=400)
        frames = [_next(socket) for _ in range(20)]
        server.signal(signal.SIGTERM)
        frames += _until_end(socket)
        suspended = frames.pop()
        assert (1012, 1012) == (_close_code(socket), _close_code(idle))
    assert ("suspended", frames[0]["run"]) == (suspended["type"], suspended["run"])
    assert 0 == server.wait()

    server = start_server(*SCRIPTED, data_dir=server.database_path.parent, port=server.port)
    server.wait_until_ready()
    with _connected(server) as socket:
        _say(socket, type="resume", run=frames[0]["run"], seq=frames[-1]["seq"])
        frames += _until_end(socket)

    numbers = [frame["seq"] for frame in frames]
    assert sorted(set(numbers)) == numbers
    assert ("done", "length") == (frames[-1]["type"], frames[-1]["finish_reason"])
    run = server.client.get(f"/v1/runs/{frames[0]['run']}").json()
    assert (400, run["choices"][0]["text"]) == (len(_text(frames)), _text(frames))
    assert "Traceback" not in server.log()
