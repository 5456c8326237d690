"""A real server process on a real socket, and clients that see its bytes."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import httpx2
import psutil

T = TypeVar("T")

HOST = "127.0.0.1"
#: Generous: the cores may be shared with others.
START_TIMEOUT_S = 120.0
DEADLINE_S = 60.0
_POLL_S = 0.02


def eventually(condition: Callable[[], T], what: str, timeout_s: float = DEADLINE_S) -> T:
    """Poll until the condition gives something true, and return that; the only place to wait."""
    deadline_s = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline_s, f"not within {timeout_s} s: {what}"
        time.sleep(_POLL_S)
    return value


def stays(condition: Callable[[], bool], for_s: float) -> bool:
    """Whether the condition holds each time it is looked at, for as long as this."""
    deadline_s = time.monotonic() + for_s
    while time.monotonic() < deadline_s:
        if not condition():
            return False
        time.sleep(_POLL_S)
    return True


def clean_environment() -> dict[str, str]:
    """The environment without settings of our own, and without the network."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("STREAMWELL_")}
    return kept | {"HF_HUB_OFFLINE": "1"}


def _own_ports() -> Iterator[int]:
    """A hundred ports, again and again, that other processes of tests leave alone.

    They lie below those that connections leave from, which anybody may take before a server does.
    """
    first = 20_000 + 100 * (os.getpid() % 100)
    return itertools.cycle(range(first, first + 100))


_PORTS = _own_ports()


def free_port() -> int:
    """A port that nobody listens on; it stays so until a server of this process takes it."""
    return next(port for port in _PORTS if _is_free(port))


def _is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


class ServerProcess:
    """`streamwell serve` as a child of the test."""

    def __init__(
        self, folder: Path, *flags: str, data_dir: Path | None = None, port: int | None = None
    ) -> None:
        """Serves brooklet alone where no model, or function that loads one, is named first.

        With the data folder and the port of one that has ended, it takes its place.
        """
        self.port = port or free_port()
        self.url = f"http://{HOST}:{self.port}"
        self.log_path = folder / "server.log"
        self.database_path = (data_dir or folder / "data") / "streamwell.db"
        is_named = flags and (flags[0] == "--loader" or not flags[0].startswith("-"))
        models = () if is_named else ("brooklet",)
        command = [sys.executable, "-m", "streamwell", "serve", *models, *flags]
        command += ["--port", str(self.port), "--data-dir", str(self.database_path.parent)]
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean_environment()
            )
        self.client = httpx2.Client(
            base_url=self.url,
            timeout=DEADLINE_S,
            limits=httpx2.Limits(max_connections=None),
            verify=False,  # only saves the time to load certificates: this is plain HTTP
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_open(self) -> bool:
        """The port accepts connections; fails the test if the process has ended instead."""
        assert self._process.poll() is None, self.log()
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0

    def is_ready(self) -> bool:
        return self.is_open() and self.client.get("/ready").status_code == 200

    def wait_until_ready(self) -> None:
        eventually(self.is_ready, f"{self.url} is ready", START_TIMEOUT_S)

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float = DEADLINE_S) -> int:
        """Wait for the process to end; returns its exit code."""
        return self._process.wait(timeout_s)

    def close(self) -> None:
        """End the process, whatever state it is in."""
        self.client.close()
        if self._process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.wait()
            except subprocess.TimeoutExpired:
                self._process.kill()
                self.wait()

    def metrics(self) -> dict[str, float]:
        """Every sample of `/metrics` by its name with its labels, but for those of models.

        These are summed up.
        """
        totals: Counter[str] = Counter()
        for line in self.client.get("/metrics").text.splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = re.sub(r'\{model_name="[^"]*"\}', "", name)
                totals[name.removeprefix("streamwell_")] += float(value)
        return totals

    def is_idle(self) -> bool:
        """Nothing runs, waits, or holds a block of the cache."""
        metrics = self.metrics()
        names = ("requests_running", "requests_waiting", "kv_cache_usage_ratio")
        return all(metrics[name] == 0 for name in names)

    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8")

    def post(self, path: str, body: dict[str, Any], **options: Any) -> httpx2.Response:  # noqa: ANN401 - httpx2's own
        return self.client.post(path, json=body, **options)

    def text(self, body: dict[str, Any], path: str = "/v1/completions") -> str:
        """The text of a request that is answered whole."""
        response = self.post(path, body)
        assert 200 == response.status_code, response.text
        choice = response.json()["choices"][0]
        text: str = choice["text"] if "text" in choice else choice["message"]["content"]
        return text

    @contextmanager
    def stream(
        self, body: dict[str, Any], path: str = "/v1/completions"
    ) -> Iterator[Iterator[Frame]]:
        """The frames of a streamed answer as they come; leaving early closes the connection."""
        with self.client.stream("POST", path, json=body | {"stream": True}) as response:
            assert 200 == response.status_code, response.read()
            yield frames_of(response.iter_lines())

    def stream_text(self, body: dict[str, Any], path: str = "/v1/completions") -> str:
        """The joined text of a stream, which must have ended well."""
        with self.stream(body, path) as stream:
            frames = list(stream)
        assert "[DONE]" == frames[-1].data
        return "".join(frame.text for frame in frames)


class Places(TypedDict, total=False):
    """Where a server is to be that takes the place of another."""

    data_dir: Path
    port: int


#: What the fixture `start_server` gives: flags in, a process out that is not waited for.
StartServer = Callable[..., ServerProcess]


@dataclass(frozen=True, slots=True)
class Frame:
    """One server-sent event."""

    id: str | None
    data: str

    @property
    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.data)
        return value

    @property
    def text(self) -> str:
        """The text of the frame's choice, if it has one."""
        if self.data == "[DONE]":
            return ""
        choices = self.json.get("choices") or [{}]
        return choices[0].get("text") or choices[0].get("delta", {}).get("content") or ""

    @property
    def finish_reason(self) -> str | None:
        if self.data == "[DONE]":
            return None
        choices = self.json.get("choices") or [{}]
        reason: str | None = choices[0].get("finish_reason")
        return reason


def frames_of(lines: Iterator[str]) -> Iterator[Frame]:
    """Parse a stream strictly: per frame an optional `id`, one `data`, an empty line."""
    frame_id, data = None, None
    for line in lines:
        if not line:
            if data is not None:
                yield Frame(frame_id, data)
            frame_id, data = None, None
        elif match := re.fullmatch(r"id: (\S+)", line):
            frame_id = match[1]
        elif line.startswith("data: "):
            assert data is None, "two data lines in a frame"
            data = line.removeprefix("data: ")
        else:
            is_known = line.startswith(":") or re.fullmatch(r"retry: [0-9]+", line)
            assert is_known, f"neither id, data, retry nor comment: {line!r}"
    assert data is None, "the stream ends within a frame"
