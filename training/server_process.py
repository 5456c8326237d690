"""Servers that run in a process of their own for as long as somebody asks them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

START_TIMEOUT_S, STOP_TIMEOUT_S = 900.0, 60.0


@dataclass(frozen=True, slots=True)
class Target:
    """A server, ours or another."""

    name: str
    #: Its command line, but for the address.
    command: tuple[str, ...]
    #: The name that requests give its model.
    model: str = ""
    #: What it gets beside our own environment.
    environment: Mapping[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def running(target: Target, log_path: Path) -> Iterator[str]:
    """Start a server, yield its address once it is ready, and stop it in the end.

    Raises:
        RuntimeError: it did not start; its own last words are in the message.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = ("--host", "127.0.0.1", "--port", str(port))
    with log_path.open("wb") as log:
        try:
            process = subprocess.Popen(
                (*target.command, *address),
                stdout=log,
                stderr=log,
                env=os.environ | target.environment,
            )
        except OSError as error:
            raise RuntimeError(str(error)) from error
    try:
        _wait_until_ready(process, f"http://127.0.0.1:{port}", log_path)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], base_url: str, log_path: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx2.TransportError):
            if httpx2.get(f"{base_url}/health", trust_env=False).status_code == 200:
                return
        time.sleep(0.2)
    last_words = log_path.read_text(encoding="utf-8", errors="replace").strip()
    raise RuntimeError(f"not ready (exit code {process.poll()}): {last_words[-400:]}")
