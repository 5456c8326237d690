"""Servers that are killed and take each other's place, and what is counted beside them."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from client import Follower
from harness import START_TIMEOUT_S, ServerProcess, eventually
from routes import Completions, Event, Route, TextStream

from bench.models import model_folder

_ENGINE = "streamwell.engine.process"
_COMMON = ("--log-level", "info")
_READY = re.compile(r"^(\S+)Z \[info +\] engine ready", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Revival:
    """When a server's port was open, in `time.monotonic`, and how long it then loaded."""

    open_s: float
    load_s: float


class Lives:
    """One server after the other, in the same folder and on the same port."""

    def __init__(self, folder: Path, *flags: str) -> None:
        """With `CHAOS_MODEL` in the environment, that model of `bench.models` is served."""
        self._folder = folder
        name = os.environ.get("CHAOS_MODEL")
        model = (str(model_folder(name)),) if name else ()
        self._flags = (*model, *_COMMON, *flags)
        self._num = 0
        self.server = self._start()
        self.server.wait_until_ready()

    @property
    def port(self) -> int:
        return self.server.port

    def engine(self) -> psutil.Process:
        (engine,) = self._engines()
        return engine

    def has_new_engine(self, pid: int) -> bool:
        """The engine of this pid has gone, and another one is up."""
        pids = [engine.pid for engine in self._engines()]
        return bool(pids) and pid not in pids and self.server.is_ready()

    def _engines(self) -> list[psutil.Process]:
        children = self.server.children()
        return [child for child in children if _ENGINE in _command_line(child)]

    def start_next(self) -> float:
        """Start a server in the place of one that was killed; returns when its port was open."""
        assert -signal.SIGKILL == self.server.wait()
        self.server.client.close()
        self.server = self._start(port=self.server.port)
        eventually(self.server.is_open, "the port is open", START_TIMEOUT_S)
        open_s = time.monotonic()
        self.server.wait_until_ready()
        return open_s

    def revive(self) -> Revival:
        """`start_next`, and how long its engine took."""
        open_s = self.start_next()
        return Revival(open_s, self.engine_ready_s() - open_s)

    def engine_ready_s(self) -> float:
        """When the server said last that its engine was up, in `time.monotonic`."""
        said = datetime.fromisoformat(_READY.findall(self.server.log())[-1]).replace(tzinfo=UTC)
        return time.monotonic() - (time.time() - said.timestamp())

    def close(self) -> None:
        self.server.close()

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self._folder.glob("*/server.log")))

    def _start(self, port: int | None = None) -> ServerProcess:
        self._num += 1
        life = self._folder / f"life-{self._num:03}"
        life.mkdir()
        data_dir = self._folder / "data"
        return ServerProcess(life, *self._flags, data_dir=data_dir, port=port)


class Countdown:
    """Does something once, in the thread that brings the last of so many characters.

    Events could not be counted: how many tokens are in one depends on how busy the server is.
    """

    def __init__(self, num_chars: int, action: Callable[[], None], *, num_streams: int = 0) -> None:
        """So many streams must have begun, too."""
        self._num_left = num_chars
        self._num_unbegun = num_streams
        self._action = action
        self._lock = threading.Lock()
        self._is_reached = False
        #: When it was done, in `time.monotonic`.
        self.done_s = 0.0

    def tick(self, num_chars: int, *, is_first: bool) -> None:
        with self._lock:
            self._num_left -= num_chars
            self._num_unbegun -= is_first
            if self._is_reached or self._num_left > 0 or self._num_unbegun > 0:
                return
            self._is_reached = True
        self._action()
        self.done_s = time.monotonic()


class CountedEvents(list[Event]):
    """Events of a stream that counts down."""

    def __init__(self, countdown: Countdown, text_of: Callable[[Event], str]) -> None:
        super().__init__()
        self._countdown = countdown
        self._text_of = text_of

    def append(self, event: Event) -> None:
        is_first = not self
        super().append(event)
        self._countdown.tick(len(self._text_of(event)), is_first=is_first)


def kill(pid: int, number: int = signal.SIGKILL) -> Callable[[], None]:
    return lambda: os.kill(pid, number)


class Following:
    """Followers that read at the same time, each in a thread."""

    def __init__(self, pool: ThreadPoolExecutor, followers: Sequence[Follower]) -> None:
        self._reading = [pool.submit(follower.follow) for follower in followers]

    def wait_for(self, countdown: Countdown) -> None:
        """Wait until that was done; raises what went wrong with a follower instead."""
        eventually(lambda: countdown.done_s or self._are_done(), "the moment")
        assert countdown.done_s, "the runs ended with too little text"

    def wait(self) -> None:
        """Wait for all ends; raises what went wrong."""
        for future in self._reading:
            future.result()

    def _are_done(self) -> bool:
        for future in self._reading:
            if future.done():
                future.result()
        return all(future.done() for future in self._reading)


def route_of(index: int, prompt: str, options: dict[str, Any], key: str) -> Route:
    """One of the routes, in turn; a chat of one message means the same on all of them."""
    chat = {"messages": [{"role": "user", "content": prompt}], **options}
    match index % 4:
        case 0:
            usage = {"stream_options": {"include_usage": True}}
            return Completions("/v1/chat/completions", chat | usage, key)
        case 1:
            return TextStream({"prompt": prompt, **options})
        case 2:
            usage = {"stream_options": {"include_usage": True}}
            return Completions("/v1/chat/completions", chat | usage, key, "query")
    return TextStream({"prompt": prompt, **options}, "query")


@dataclass(slots=True)
class Tally:
    """What became of runs."""

    num_runs: int = 0
    num_equal: int = 0
    num_breaks: int = 0
    #: What was wrong with the first ones that are not equal.
    faults: list[str] = field(default_factory=list)

    def add(self, follower: Follower, text: str) -> None:
        """`text` is that of the uncut run."""
        self.num_runs += 1
        self.num_breaks += follower.num_breaks
        if fault := _fault(follower, text):
            self.faults = [*self.faults, f"{follower.run_id} by {follower.route.name}: {fault}"][:9]
        else:
            self.num_equal += 1

    def check(self) -> None:
        """All runs are whole."""
        assert not self.faults, "\n".join([str(self), *self.faults])
        assert (self.num_runs, 0) == (self.num_equal, self.num_breaks)

    def __str__(self) -> str:
        return f"runs={self.num_runs} equal={self.num_equal} gaps_or_repeats={self.num_breaks}"


def _fault(follower: Follower, text: str) -> str:
    """How a run differs from what it should be; empty if it does not."""
    if not follower.is_ended:
        return "it has no end"
    if follower.text != text:
        pairs = enumerate(zip(follower.text, text, strict=False))
        at = next((at for at, (is_, should) in pairs if is_ != should), len(text))
        return f"{follower.text[at:][:40]!r} for {text[at:][:40]!r} at {at}"
    logged = follower.replay()
    if len(logged) != len(follower.events):
        return f"{len(logged)} events in the log, {len(follower.events)} shown"
    for late, seen in zip(logged, follower.events, strict=True):
        if late != seen:
            return f"{late.raw!r} in the log, {seen.raw!r} shown"
    return ""


def spread(name: str, values_s: Sequence[float]) -> str:
    """Median and maximum, for a summary."""
    if not values_s:
        return f"{name}=none"
    return f"{name}: median {statistics.median(values_s):.2f} s, max {max(values_s):.2f} s"


def percentiles(name: str, values_s: Sequence[float]) -> str:
    """p50 and p99, for a summary."""
    ordered = sorted(values_s)
    p50, p99 = (1000 * ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
    return f"{name}: p50 {p50:.0f} ms, p99 {p99:.0f} ms (n={len(ordered)})"


def rows(database: Path, query: str, *parameters: str) -> list[tuple[Any, ...]]:
    """The answer to a query, read beside the server."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return connection.execute(query, parameters).fetchall()


def is_sound(database: Path) -> bool:
    return rows(database, "PRAGMA integrity_check") == [("ok",)]


def is_gone(process: psutil.Process) -> bool:
    """It has ended, though perhaps nobody has asked for its exit code yet."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
