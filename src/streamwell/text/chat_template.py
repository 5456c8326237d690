"""Renders chat templates in a process of their own, which is given little and may be lost.

A thread cannot be ended, and Python cannot interrupt a call into C: only a process holds against a
template that never ends (decision 0019). It starts with the first rendering, takes some 20 MB, and
is replaced when it has ended.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from typing import Any, BinaryIO

from streamwell.core.errors import InvalidRequest
from streamwell.text.confinement import bare_environment
from streamwell.text.template_process import HARM, LENGTH_BYTES, REFUSAL, RENDER_CPU_S

#: Only for what neither computes nor ends; what computes is ended long before, by its CPU time.
_SILENCE_S = 60.0


class HarmfulTemplate(InvalidRequest):
    """The template ran out of its limits, or tried to leave its sandbox."""


class TemplateRenderer:
    """Renders templates one after the other; any number of threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: _Process | None = None

    def literals(self, source: str) -> str:
        """All text that a template may write by itself, pieces apart from each other by NUL.

        Raises:
            HarmfulTemplate: it wants files, or cannot be parsed within the limits.
            InvalidRequest: it is not a template.
        """
        return self._ask(source, None)

    def render(self, source: str, variables: Mapping[str, Any]) -> str:
        """What a template makes of variables, which must be JSON.

        Raises:
            HarmfulTemplate: it was stopped.
            InvalidRequest: it refuses these variables, or fails; the message is its own.
        """
        return self._ask(source, variables)

    def close(self) -> None:
        """End the process; the next rendering would start another."""
        with self._lock:
            if self._process is not None:
                self._process.end()
            self._process = None

    def _ask(self, source: str, variables: Mapping[str, Any] | None) -> str:
        message = json.dumps({"source": source, "variables": variables}).encode()
        with self._lock:
            if self._process is None or not self._process.is_alive:
                self._process = _Process()
            kind, text = self._process.ask(message)
        if kind == HARM:
            text = f"the chat template of this model was stopped: {text}"
            raise HarmfulTemplate(text, param="messages")
        if kind == REFUSAL:
            raise InvalidRequest(text, param="messages")
        return text


class _Process:
    """One process, and our end of the socket to it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(_SILENCE_S)
        with theirs:
            fd = theirs.fileno()
            self._process = subprocess.Popen(
                (sys.executable, "-m", "streamwell.text.template_process", str(fd)),
                pass_fds=(fd,),
                stdin=subprocess.DEVNULL,
                env=bare_environment(),
            )
        self._reader = self._socket.makefile("rb")
        #: Ends the process, now or when nobody knows it any more.
        self.end = weakref.finalize(self, _end, self._process, self._socket, self._reader)

    @property
    def is_alive(self) -> bool:
        return self.end.alive and self._process.poll() is None

    def ask(self, message: bytes) -> tuple[bytes, str]:
        """What came of it, and a text."""
        try:
            self._socket.sendall(len(message).to_bytes(LENGTH_BYTES) + message)
            num_bytes = int.from_bytes(self._reader.read(LENGTH_BYTES))
            answer = self._reader.read(num_bytes)
        except OSError:  # it is silent, or has ended before it has read all
            num_bytes, answer = 0, b""
        if answer and len(answer) == num_bytes:
            return answer[:1], answer[1:].decode("utf-8", "surrogatepass")
        self.end()
        return HARM, self._last_words()

    def _last_words(self) -> str:
        if self._process.returncode == -signal.SIGPROF:
            return f"it took more than {RENDER_CPU_S:g} s"
        return f"its process ended ({self._process.returncode})"


def _end(process: subprocess.Popen[bytes], *ours: socket.socket | BinaryIO) -> None:
    for end in ours:
        end.close()
    process.kill()
    process.wait()
