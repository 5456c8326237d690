"""`streamwell chat`: talk to a model in the terminal."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import httpx2
from rich.console import Console

from streamwell.cli.address import DEFAULT_URL, Address
from streamwell.cli.chat_answer import ChatAnswer
from streamwell.cli.chat_commands import Commands, Conversation
from streamwell.cli.chat_input import ChatInput
from streamwell.cli.chat_output import answer_writer
from streamwell.cli.harmless import on_stdout
from streamwell.cli.remote import (
    UnfitServer,
    answers,
    client_of,
    connected,
    model_names,
    reason_of,
    told,
    wait_until_ready,
)
from streamwell.core.errors import InvalidRequest, StreamwellError

#: Where a server of our own listens.
_HOST = "127.0.0.1"
#: What may go wrong with an answer or a command; the conversation outlives it.
_WRONG = (StreamwellError, UnfitServer, httpx2.HTTPError)


def run(address: Address, *, model: str, system: str) -> None:
    """Read a line, stream the answer, until the input ends; Ctrl-C stops an answer, or leaves.

    Exits with 1 and one line when there is no server to talk to.
    """
    with _server(address) as client:
        _Chat(client, Conversation(model, system)).converse()


class _Chat:
    """One conversation with a server."""

    def __init__(self, client: httpx2.Client, conversation: Conversation) -> None:
        self._client = client
        self._conversation = conversation
        self._input = ChatInput()
        self._console = Console()
        self._commands = Commands(
            conversation, answer=self._answer, list_models=lambda: model_names(client)
        )

    def converse(self) -> None:
        """Until the input ends. In a pipe what goes wrong ends it; on a terminal it is told."""
        if self._input.is_terminal:
            keys = "Ctrl-C stops an answer; without one it leaves, as Ctrl-D does"
            print(f"/help lists commands; {keys}.", file=sys.stderr)
        while True:
            try:
                self._turn(self._input.read())
            except (EOFError, KeyboardInterrupt):
                if self._input.is_terminal:
                    print()
                return
            except _WRONG as error:
                if not self._input.is_terminal:
                    raise
                line = "; ".join((reason_of(error), *getattr(error, "__notes__", ())))
                print(f"streamwell: {line}", file=sys.stderr)

    def _turn(self, text: str) -> None:
        if text.startswith("/"):
            if said := self._commands.run(text):
                print(on_stdout(said))
        elif text.strip():
            self._conversation.ask(text.strip())
            self._answer()

    def _answer(self) -> None:
        """Ask, print, and remember what came, also of an answer that is stopped or breaks off."""
        answer, pieces = ChatAnswer(self._client, self._conversation.body()), list[str]()
        try:
            self._show(answer, pieces)
        except KeyboardInterrupt:
            answer.cancel()
            print(" [stopped]")
        except _WRONG as error:
            if pieces:
                print()
            if self._input.is_terminal and not isinstance(error, InvalidRequest):
                error.add_note("/retry asks again")
            raise
        else:
            print()
            pieces.append("")  # an empty answer is one too
        finally:
            if pieces:
                self._conversation.answered("".join(pieces))

    def _show(self, answer: ChatAnswer, pieces: list[str]) -> None:
        """Print an answer as it comes, and add what came to the pieces."""
        with self._input.without_echo(), answer_writer(self._console) as writer:
            for text in answer:
                pieces.append(text)
                writer.write(text)
                self._input.check_stop()


@contextlib.contextmanager
def _server(address: Address) -> Iterator[httpx2.Client]:
    """A client of a server that is ready: the one asked for, else one of our own."""
    if address.base != DEFAULT_URL or answers(DEFAULT_URL):
        with connected(address) as client:
            wait_until_ready(client)
            yield client
        return
    port = _free_port()
    print(f"no server at {DEFAULT_URL}; starting one on port {port}", file=sys.stderr)
    url = f"http://{_HOST}:{port}"
    with told(url), client_of(url, address.headers) as client, _own_server(port) as process:
        wait_until_ready(client, has_ended=lambda: process.poll() is not None)
        yield client


@contextlib.contextmanager
def _own_server(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A server that ends with this process, unless that is killed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    flags = ("--host", _HOST, "--port", str(port), "--log-level", "error", "--no-open")
    with subprocess.Popen(
        [sys.executable, "-m", "streamwell", "serve", *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,  # Ctrl-C stops an answer, not the server
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
