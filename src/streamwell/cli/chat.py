"""`streamwell chat`: talk to a model in the terminal."""

from __future__ import annotations

import contextlib
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
from streamwell.cli.remote import (
    UnfitServer,
    answers,
    call,
    check_answers,
    client_of,
    told,
    wait_until_ready,
)
from streamwell.core.errors import StreamwellError


def run(address: Address, *, model: str, system: str) -> None:
    """Read a line, stream the answer, until the input ends; Ctrl-C stops an answer.

    Exits with 1 and one line when there is no server to talk to.
    """
    url = address.base
    with told(url), _server(url) as base_url, client_of(base_url, address.headers) as client:
        wait_until_ready(client)
        _Chat(client, Conversation(model, system)).converse()


class _Chat:
    """One conversation with a server."""

    def __init__(self, client: httpx2.Client, conversation: Conversation) -> None:
        self._client = client
        self._conversation = conversation
        self._input = ChatInput()
        self._console = Console()
        self._commands = Commands(conversation, answer=self._answer, list_models=self._list_models)

    def converse(self) -> None:
        """Until the input ends. In a pipe what goes wrong ends it; on a terminal it is told."""
        if self._input.is_terminal:
            print("/help lists commands; Ctrl-C stops an answer, Ctrl-D leaves.", file=sys.stderr)
        while True:
            try:
                self._turn(self._input.read())
            except (EOFError, KeyboardInterrupt):
                print()
                return
            except (StreamwellError, UnfitServer) as error:
                if not self._input.is_terminal:
                    raise
                print(f"streamwell: {error}", file=sys.stderr)

    def _turn(self, text: str) -> None:
        if text.startswith("/"):
            if said := self._commands.run(text):
                print(said)
        elif text.strip():
            self._conversation.say("user", text.strip())
            self._answer()

    def _answer(self) -> None:
        """Ask, print, and remember what came, also of an answer that is stopped or breaks off."""
        answer, pieces = ChatAnswer(self._client, self._conversation.body()), list[str]()
        try:
            with answer_writer(self._console) as writer:
                for text in answer:
                    pieces.append(text)
                    writer.write(text)
                    self._input.check_stop()
        except KeyboardInterrupt:
            answer.cancel()
            print(" [stopped]", end="")
        except (StreamwellError, UnfitServer):
            if pieces:
                print()
                self._conversation.say("assistant", "".join(pieces))
            else:
                self._conversation.messages.pop()  # a question without an answer
            raise
        print()
        self._conversation.say("assistant", "".join(pieces))

    def _list_models(self) -> list[str]:
        return [card["id"] for card in call(self._client, "GET", "/v1/models")["data"]]


@contextlib.contextmanager
def _server(url: str) -> Iterator[str]:
    """The URL of a server: the one asked for if it answers, else one of our own."""
    if url != DEFAULT_URL:
        check_answers(url)
    if answers(url):
        yield url
        return
    port = _free_port()
    print(f"no server at {url}; starting one on port {port}", file=sys.stderr)
    command = [sys.executable, "-m", "streamwell", "serve", "--port", str(port)]
    with subprocess.Popen([*command, "--log-level", "error"], stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
