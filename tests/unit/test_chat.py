"""`streamwell chat` in front of servers that are not Streamwell: one line, and no traceback."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from io import BytesIO, TextIOWrapper

import httpx2
import pytest
from stand_in import CHAT, HELLO, HTML, JSON, MODELS, NOT_FOUND, OURS, READY, SSE, Answers, serving

from streamwell.cli import main
from streamwell.cli.address import Address
from streamwell.cli.chat import _own_server, run
from streamwell.cli.chat_input import ChatInput
from streamwell.cli.remote import wait_until_ready
from streamwell.core.errors import EngineDied, InvalidRequest, LoadError

GIVE = ": give --api-key or STREAMWELL_API_KEY"
COMPATIBLE: Answers = {READY: NOT_FOUND, MODELS: (200, JSON, '{"object": "list", "data": []}')}


@pytest.fixture(autouse=True)
def _one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user types one line."""
    lines = ["Hello!"]

    def give(_prompt: str) -> str:
        if not lines:
            raise EOFError
        return lines.pop()

    monkeypatch.setattr("builtins.input", give)


def talk(answers: Answers) -> None:
    with serving(answers) as url:
        run(Address(url=url), model="", system="")


@pytest.mark.parametrize("first", [OURS, COMPATIBLE], ids=["ours", "another"])
def test_compatible_servers_are_talked_to(first: Answers, capsys: pytest.CaptureFixture) -> None:
    """A server needs no `/ready`; a stream may have events without choices, and half characters."""
    half = r'{"choices": [{"delta": {"content": "\ud83d"}}]}'
    events = ['{"choices": []}', '{"choices": [{"delta": {"content": "lo"}}]}', half, "[DONE]"]
    stream = HELLO + "".join(f": ping\n\ndata:{event}\n\n" for event in events)

    talk(first | {CHAT: (200, SSE, stream)})

    assert "Hello?\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({}, "GET /v1/models is answered with 404 and text/html"),
        ({READY: (200, HTML, "<h1>Welcome</h1>")}, "GET /v1/models is answered with 404"),
        ({READY: (200, JSON, "[1]"), MODELS: (200, JSON, "[1]")}, "GET /v1/models is answered"),
        ({MODELS: (200, HTML, "<h1>Welcome</h1>")}, "with 200 and text/html"),
        (OURS, "POST /v1/chat/completions is answered with 404 and text/html"),
        (OURS | {CHAT: (500, JSON, "{")}, "with 500 and application/json"),
        (OURS | {CHAT: (400, JSON, '{"error": 1}')}, "with 400 and application/json"),
        (OURS | {CHAT: (200, JSON, '{"choices": []}')}, "with 200 and application/json"),
        (OURS | {CHAT: (200, SSE, "data: Hello\n\n")}, "events of another kind"),
        (OURS | {CHAT: (200, SSE, "data: 5\n\n")}, "events of another kind"),
        (OURS | {CHAT: (200, SSE, 'data: {"text": "Hello"}\n\n')}, "JSON of another kind"),
        (OURS | {CHAT: (200, SSE, 'data: {"choices": [{}]}\n\n')}, "JSON of another kind"),
        (OURS | {CHAT: (200, SSE, 'data: {"choices": 5}\n\n')}, "JSON of another kind"),
    ],
)
def test_other_servers_are_told_in_one_line(answers: Answers, told: str) -> None:
    """What was asked and what came back; the exit status is 1."""
    with pytest.raises(SystemExit) as exit_:
        talk(answers)

    message = exit_.value.code  # a text: printed to standard error, with status 1
    assert isinstance(message, str)
    assert message.startswith("streamwell: this does not look like an OpenAI-compatible server")
    assert told in message
    assert "\n" not in message


def test_a_connection_that_breaks_is_told_in_one_line() -> None:
    """Half a body is no answer."""
    kind = f"{SSE}\r\ncontent-length: 1000"

    with pytest.raises(SystemExit) as exit_:
        talk(OURS | {CHAT: (200, kind, HELLO)})

    assert str(exit_.value.code).startswith("streamwell: the connection to http://127.0.0.1")


@pytest.mark.parametrize("stream", ["", HELLO])
def test_a_stream_that_just_ends_is_no_answer(stream: str) -> None:
    """Also where the connection was closed in order."""
    with pytest.raises(SystemExit) as exit_:
        talk(COMPATIBLE | {CHAT: (200, SSE, stream)})

    assert str(exit_.value.code).startswith("streamwell: the answer broke off: ")


def test_an_answer_that_gave_its_reason_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Some servers say no `[DONE]` after it."""
    end = 'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'

    talk(COMPATIBLE | {CHAT: (200, SSE, HELLO + end)})

    assert "Hel\n" == capsys.readouterr().out


class AtTerminal(ChatInput):
    """A user who looks at a screen."""

    def __init__(self) -> None:
        super().__init__()
        self.is_terminal = True

    def without_echo(self) -> AbstractContextManager[None]:
        return nullcontext()  # there is no terminal to be told

    def check_stop(self) -> None:
        """Nothing is typed ahead."""


def test_on_a_terminal_the_conversation_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What goes wrong is told: with an answer, with a command, and with what is typed."""
    lines = iter(["Hello!", "/model", "no \udcff text", "/quit"])
    monkeypatch.setattr("builtins.input", lambda _prompt: next(lines))
    monkeypatch.setattr("streamwell.cli.chat.ChatInput", AtTerminal)
    kind = f"{SSE}\r\ncontent-length: 1000"

    talk(OURS | {CHAT: (200, kind, HELLO)})

    out, errors = capsys.readouterr()
    assert out.startswith("Hel\n")
    told = errors.splitlines()[1:]
    assert "peer closed connection" in told[0]
    assert told[0].endswith("; /retry asks again")
    assert "GET /v1/models is answered with 404" in told[1]
    assert "streamwell: the prompt must be text in UTF-8" == told[2]


def test_a_server_of_our_own_ends_with_the_chat_and_not_with_an_answer() -> None:
    """Ctrl-C reaches the terminal's group of processes, which it is not in."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with _own_server(0) as process:
            assert process.pid == os.getpgid(process.pid)
        assert process.returncode is not None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_server_that_ended_is_not_waited_for() -> None:
    """Who could know why is named."""
    with (
        httpx2.Client(base_url="http://127.0.0.1:1", verify=False) as client,
        pytest.raises(LoadError, match="`streamwell serve` says why"),
    ):
        wait_until_ready(client, has_ended=lambda: True)


def test_an_address_without_a_server_is_told_in_one_line() -> None:
    """Nobody answers there."""
    with serving({}) as nowhere:
        pass
    with pytest.raises(SystemExit) as exit_:
        run(Address(url=nowhere), model="", system="")
    assert str(exit_.value.code).startswith(f"streamwell: no server answers at {nowhere}: ")


@pytest.mark.filterwarnings("ignore:Cyclopts application")  # that it runs within a test
@pytest.mark.parametrize("command", ["run", "chat"])
def test_bytes_that_are_no_text_are_told_in_one_line(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the locale is strict about them."""
    piped = TextIOWrapper(BytesIO(b"no \xff text\n"), encoding="utf-8", errors="strict")
    monkeypatch.setattr(sys, "stdin", piped)
    monkeypatch.setattr("builtins.input", lambda _prompt: piped.readline())
    with serving(OURS) as url:
        monkeypatch.setattr(sys, "argv", ["streamwell", command, "--url", url])
        with pytest.raises(SystemExit) as exit_:
            main()

    assert 2 == exit_.value.code
    assert "streamwell: the prompt must be text in UTF-8\n" == capsys.readouterr().err


def test_a_request_that_cannot_be_sent_is_not_waited_for() -> None:
    """It is no server that is not there yet: the next try would be the same."""
    with serving(OURS) as url:
        client = httpx2.Client(base_url=url, headers={"x": "a\r"}, verify=False)
        with client, pytest.raises(httpx2.LocalProtocolError):
            wait_until_ready(client)


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        (
            {MODELS: (401, JSON, '{"error": {"message": "bad key"}}')},
            InvalidRequest(f"bad key{GIVE}"),
        ),
        ({MODELS: (401, HTML, "<h1>No</h1>")}, InvalidRequest(f"the server wants a key{GIVE}")),
        (OURS | {CHAT: (404, JSON, '{"error": {"message": "no m"}}')}, InvalidRequest("no m")),
        (OURS | {CHAT: (400, JSON, '{"error": "not so"}')}, InvalidRequest("not so")),
        (OURS | {CHAT: (200, SSE, 'data: {"error": {"message": "x"}}\n\n')}, EngineDied("x")),
    ],
)
def test_what_a_compatible_server_refuses_is_its_own_words(
    answers: Answers, error: Exception
) -> None:
    """An error in OpenAI's envelope is told as it is."""
    with pytest.raises(type(error), match=f"^{error}$"):
        talk(answers)
