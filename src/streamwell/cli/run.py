"""`streamwell run`: one prompt in, its answer as plain text out; for pipes."""

from __future__ import annotations

import sys
from typing import Any

from streamwell.cli.address import Address
from streamwell.cli.chat_answer import ChatAnswer
from streamwell.cli.harmless import on_stdout
from streamwell.cli.remote import connected, wait_until_ready
from streamwell.core.errors import EngineDied, InvalidRequest

#: As shells count a process that SIGINT ended.
_INTERRUPTED = 130


def run(address: Address, prompt: str, system: str, options: dict[str, Any]) -> None:
    """Print the answer as it comes.

    The process ends with 1 if there is no server, or the answer breaks off or fails.

    Args:
        address: of the server.
        prompt: what standard input has, unless it is a terminal, is added to it.
        system: empty for none.
        options: fields of a chat completion; those that are `None` are left to the server.

    Raises:
        InvalidRequest: there is no prompt, or the server refuses it.
    """
    body = {name: value for name, value in options.items() if value is not None}
    body["messages"] = _messages(_with_stdin(prompt), system)
    with connected(address) as client:
        wait_until_ready(client)
        answer = ChatAnswer(client, body)
        try:
            _print(answer)
        except EngineDied as error:
            sys.exit(f"streamwell: {error}")
        except KeyboardInterrupt:
            answer.cancel()
            sys.exit(_INTERRUPTED)
        except OSError:  # nobody reads, or the disk is full
            answer.cancel()
            raise
    _tell_end(answer)


def _with_stdin(prompt: str) -> str:
    """Raises `InvalidRequest` if both are empty."""
    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
    text = "\n\n".join(filter(None, (prompt.strip(), piped.strip())))
    if not text:
        raise InvalidRequest("there is no prompt: give one, or pipe one in", "prompt")
    return text


def _messages(prompt: str, system: str) -> list[dict[str, str]]:
    first = [{"role": "system", "content": system}] if system else []
    return [*first, {"role": "user", "content": prompt}]


def _print(answer: ChatAnswer) -> None:
    last = "\n"
    try:
        for text in answer:
            print(on_stdout(text), end="", flush=True)
            last = text[-1]
    finally:  # what is told next begins a line
        if last != "\n":
            print(flush=True)


def _tell_end(answer: ChatAnswer) -> None:
    match answer.finish_reason:
        case "length":
            print("streamwell: the answer was cut at its longest length", file=sys.stderr)
        case "cancelled":
            sys.exit("streamwell: somebody cancelled the answer")
