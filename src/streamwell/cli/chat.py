"""`streamwell chat`: talk to a model in the terminal."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx2

from streamwell.core.errors import EngineDied, InvalidRequest, LoadError

DEFAULT_URL = "http://127.0.0.1:8000"
_START_TIMEOUT_S = 300.0


def run(*, url: str, model: str, system: str, api_key: str) -> None:
    """Read a line, stream the answer, until the input ends; Ctrl-C stops an answer."""
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    with _server(url) as base_url:
        timeout = httpx2.Timeout(10.0, read=None)
        with httpx2.Client(base_url=base_url, headers=headers, timeout=timeout) as client:
            _wait_until_ready(client)
            _converse(client, model, system)


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
            raise InvalidRequest(_message(json.loads(response.read())))
        for line in response.iter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            chunk = json.loads(line.removeprefix("data: "))
            if "error" in chunk:
                raise EngineDied(_message(chunk))
            for choice in chunk["choices"]:
                yield choice["delta"].get("content") or ""


def _message(body: dict[str, dict[str, str]]) -> str:
    return body["error"]["message"]


@contextlib.contextmanager
def _server(url: str) -> Iterator[str]:
    """The URL of a server: the one asked for if it answers, else one of our own."""
    if _answers(url):
        yield url
        return
    if url != DEFAULT_URL:
        raise LoadError(f"no server answers at {url}")
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
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(httpx2.TransportError):
            response = client.get("/ready")
            if response.status_code == 200:
                return
            if error := json.loads(response.content).get("error"):
                raise LoadError(str(error))
        time.sleep(0.1)
    raise LoadError("the server did not become ready")
