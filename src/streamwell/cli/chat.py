"""`streamwell chat`: talk to a model in the terminal."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx2

from streamwell.core.errors import EngineDied, InvalidRequest, LoadError

DEFAULT_URL = "http://127.0.0.1:8000"
_START_TIMEOUT_S = 300.0


class _UnfitServerError(Exception):
    """Nobody is there, or it speaks another language; the message says so to the user."""


def run(*, url: str, model: str, system: str, api_key: str) -> None:
    """Read a line, stream the answer, until the input ends; Ctrl-C stops an answer.

    Exits with 1 and one line when there is no server to talk to.
    """
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    timeout = httpx2.Timeout(10.0, read=None)
    try:
        with (
            _server(url) as base_url,
            httpx2.Client(base_url=base_url, headers=headers, timeout=timeout) as client,
        ):
            _wait_until_ready(client)
            _converse(client, model, system)
    except _UnfitServerError as error:
        sys.exit(f"streamwell: {error}")
    except httpx2.HTTPError as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        sys.exit(f"streamwell: the connection to {url} failed: {reason}")


def _converse(client: httpx2.Client, model: str, system: str) -> None:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives input() line editing and history
    messages = [{"role": "system", "content": system}] if system else []
    while True:
        try:
            line = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if not line:
            continue
        messages.append({"role": "user", "content": line})
        answer = ""
        try:
            for text in _stream(client, model, messages):
                answer += text
                print(text, end="", flush=True)
        except KeyboardInterrupt:
            print(" [stopped]", end="")
        print()
        messages.append({"role": "assistant", "content": answer})


def _stream(client: httpx2.Client, model: str, messages: list[dict[str, str]]) -> Iterator[str]:
    """The text of one answer as it comes."""
    body = {"messages": messages, "stream": True} | ({"model": model} if model else {})
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            response.read()
            if message := _message(_parsed(response)):
                raise InvalidRequest(message)
            raise _UnfitServerError(_unfit(response))
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            raise _UnfitServerError(_unfit(response))
        for line in response.iter_lines():
            data = line.removeprefix("data:").strip()
            if line.startswith("data:") and data != "[DONE]":
                yield _text_of(data, response)


def _text_of(data: str, response: httpx2.Response) -> str:
    """The text that one event of a stream brings."""
    try:
        chunk = json.loads(data)
        if chunk.get("error"):
            raise EngineDied(_message(chunk))
        return "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _UnfitServerError(f"{_unfit(response)}, with events of another kind") from error


def _parsed(response: httpx2.Response) -> Any:  # noqa: ANN401 - it may be anything
    """The JSON of an answer that has been read; `None` if it is none."""
    try:
        return response.json()
    except ValueError:
        return None


def _message(body: Any) -> str:  # noqa: ANN401 - it may be anything
    """What an OpenAI-compatible server says is wrong; empty if this is not its way to say it."""
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return " ".join(message.split()) if isinstance(message, str) else ""


def _unfit(response: httpx2.Response) -> str:
    request, kind = response.request, response.headers.get("content-type", "nothing")
    return (
        f"this does not look like an OpenAI-compatible server: {request.method} {request.url.path} "
        f"is answered with {response.status_code} and {kind}"
    )


@contextlib.contextmanager
def _server(url: str) -> Iterator[str]:
    """The URL of a server: the one asked for if it answers, else one of our own."""
    if _answers(url):
        yield url
        return
    if url != DEFAULT_URL:
        raise _UnfitServerError(f"no server answers at {url}")
    port = _free_port()
    print(f"no server at {url}; starting one on port {port}", file=sys.stderr)
    command = [sys.executable, "-m", "streamwell", "serve", "--port", str(port)]
    with subprocess.Popen([*command, "--log-level", "error"], stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _answers(url: str) -> bool:
    try:
        httpx2.get(f"{url}/live", timeout=2.0)
    except (httpx2.TransportError, httpx2.InvalidURL):
        return False
    return True


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _wait_until_ready(client: httpx2.Client) -> None:
    """Wait while a server of ours loads its model; one of another make is taken as it is."""
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(httpx2.TransportError):
            status = _parsed(client.get("/ready"))
            if not isinstance(status, dict) or "status" not in status:
                _check_compatible(client)
                return
            if status["status"] == "ready":
                return
            if error := status.get("error"):
                raise LoadError(str(error))
        time.sleep(0.1)
    raise LoadError("the server did not become ready")


def _check_compatible(client: httpx2.Client) -> None:
    """Ask for what every OpenAI-compatible server has, before the user types a line."""
    response = client.get("/v1/models")
    models = _parsed(response)
    if message := _message(models):
        raise InvalidRequest(message)
    if response.status_code != 200 or not isinstance(models, dict) or "data" not in models:
        raise _UnfitServerError(_unfit(response))
