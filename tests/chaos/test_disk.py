"""The run log cannot be written for a while: nothing is shown that is not in it, then or later."""

from __future__ import annotations

import random
import resource
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from client import Connection, Follower, Frames
from harness import DEADLINE_S, eventually, stays
from ops import Lives, Tally, is_sound, kill, rows
from rounds import repeated
from routes import Completions, Event

from streamwell.store.rows import events_from_row

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NUM_STREAMS = 4
BODY = {"prompt": "Once upon a time", "ignore_eos": True}
SHORT = BODY | {"max_tokens": 20, "seed": 1}


class Witness:
    """A stream, and what it showed until its end."""

    def __init__(self, port: int, body: dict[str, Any]) -> None:
        self.events: list[Event] = []
        self.body = body
        self.route = Completions("/v1/completions", body, f"disk-{random.random()}")
        self._port = port

    @property
    def error_code(self) -> str | None:
        """Why it ended, if not by itself."""
        code: str | None = self.events[-1].json.get("error", {}).get("code")
        return code

    def read(self) -> Witness:
        frames = Frames()
        with Connection(self._port, self.route.ask(None)) as connection:
            assert 200 == connection.status()
            deadline_s = time.monotonic() + DEADLINE_S
            for payload in connection.payloads():
                self.events += frames.push(payload)
                assert time.monotonic() < deadline_s, "the stream neither goes on nor ends"
        return self

    def is_in(self, database: Path) -> bool:
        """All that was shown is in the log."""
        shown = [event for event in self.events if event.id]
        if not shown:
            return True
        query = "SELECT * FROM run_events WHERE run_id = ?"
        found = rows(database, query, shown[0].run_id)
        logged = {event.seq: event.text for row in found for event in events_from_row(row)}
        return all(_text(event) == logged.get(event.place[0]) for event in shown)


def _flow(witnesses: list[Witness]) -> bool:
    return all(len(witness.events) > 10 for witness in witnesses)


def _text(event: Event) -> str:
    return (event.json.get("choices") or [{}])[0].get("text") or ""


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    """An engine that makes a token every 10 ms, whatever the disk does."""
    flags = ("--engine", "scripted", "--scripted-step-s", "0.01")
    with closing(Lives(tmp_path_factory.mktemp("disk"), *flags)) as lives:
        yield lives


@contextmanager
def _locked(lives: Lives) -> Iterator[None]:
    """Another connection holds the write lock."""
    with closing(sqlite3.connect(lives.server.database_path, isolation_level=None)) as other:
        other.execute(f"PRAGMA busy_timeout = {1000 * DEADLINE_S}")
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def _full(lives: Lives, max_bytes: int) -> Iterator[None]:
    """No file of the server, its own log among them, can grow beyond this."""
    _, hard = limits = resource.prlimit(lives.server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(lives.server.pid, resource.RLIMIT_FSIZE, (max_bytes, hard))
    try:
        yield
    finally:
        resource.prlimit(lives.server.pid, resource.RLIMIT_FSIZE, limits)


def _endless(lives: Lives) -> list[Witness]:
    bodies = [BODY | {"max_tokens": 800, "seed": seed} for seed in range(NUM_STREAMS)]
    return [Witness(lives.port, body) for body in bodies]


def _check_log(lives: Lives, witnesses: list[Witness], alone: str) -> None:
    """The log does not lie, and the server works again."""
    database = lives.server.database_path
    assert all(witness.is_in(database) for witness in witnesses)
    assert alone == eventually(lambda: _answer(lives), "new requests are answered")
    assert is_sound(database)
    eventually(lives.server.is_idle, "nothing runs for a log that broke")
    assert "Traceback" not in lives.log()


def _answer(lives: Lives) -> str | None:
    answer = lives.server.post("/v1/completions", SHORT)
    text: str | None = answer.json()["choices"][0]["text"] if answer.is_success else None
    return text


@pytest.mark.parametrize("lock_s", repeated(full=4, short=2))
def test_a_lock_shorter_than_the_patience_is_a_pause(
    scripted: Lives, summary: Callable[..., None], lock_s: float
) -> None:
    """Streams stand still while another process holds the database, and go on to their end."""
    alone = scripted.server.text(SHORT)
    bodies = [BODY | {"max_tokens": 100, "seed": seed} for seed in range(NUM_STREAMS)]
    witnesses = [Witness(scripted.port, body) for body in bodies]
    with ThreadPoolExecutor(NUM_STREAMS) as pool:
        texts = list(pool.map(scripted.server.text, bodies))
        reading = [pool.submit(witness.read) for witness in witnesses]
        eventually(partial(_flow, witnesses), "tokens flow")
        with _locked(scripted):
            assert stays(scripted.server.is_ready, lock_s)
        for future in reading:
            future.result()

    assert texts == ["".join(map(_text, witness.events)) for witness in witnesses]
    _check_log(scripted, witnesses, alone)
    summary(f"locked={lock_s} s", f"streams={NUM_STREAMS} equal={NUM_STREAMS}")


@pytest.mark.parametrize("lock_s", repeated(full=30, short=6))
def test_a_longer_lock_ends_streams_with_a_reason(
    scripted: Lives, summary: Callable[..., None], lock_s: float
) -> None:
    """They get `store_failed`, unless nothing of theirs was under way; then all is well again."""
    alone = scripted.server.text(SHORT)
    witnesses = _endless(scripted)
    with ThreadPoolExecutor(NUM_STREAMS + 1) as pool:
        reading = [pool.submit(witness.read) for witness in witnesses]
        eventually(partial(_flow, witnesses), "tokens flow")
        with _locked(scripted):
            newcomer = pool.submit(Witness(scripted.port, SHORT).read)
            assert stays(scripted.server.is_open, lock_s)
            # SQLite counts its naps and not their seconds: on a busy machine it is more patient
            eventually(lambda: any(future.done() for future in reading), "somebody is told")
        for future in reading:
            future.result()
        newcomer.result()

    codes = [w.error_code for w in witnesses]
    assert {"store_failed"} <= set(codes) <= {"store_failed", None}
    assert all(w.error_code or w.events[-1].data == "[DONE]" for w in witnesses)
    _check_log(scripted, [*witnesses, newcomer.result()], alone)
    num_told = codes.count("store_failed")
    summary(f"locked={lock_s} s", f"streams={NUM_STREAMS}: {num_told} told why, the rest whole")


@pytest.mark.parametrize("max_bytes", [1 << 16, 0], ids=["database", "all files"])
@pytest.mark.parametrize("num_rounds", repeated(full=10, short=1))
def test_a_full_disk_ends_streams_with_a_reason(
    scripted: Lives, summary: Callable[..., None], num_rounds: int, max_bytes: int
) -> None:
    """As long as nothing can be written nothing is acknowledged; with room all is well again."""
    alone = scripted.server.text(SHORT)
    for _ in range(num_rounds):
        witnesses = _endless(scripted)
        with ThreadPoolExecutor(NUM_STREAMS) as pool:
            reading = [pool.submit(witness.read) for witness in witnesses]
            eventually(partial(_flow, witnesses), "tokens flow")
            with _full(scripted, max_bytes):
                for future in reading:
                    future.result()
                refused = scripted.server.post("/v1/completions", SHORT)
        assert {"store_failed"} == {witness.error_code for witness in witnesses}
        assert (503, "store_failed") == (refused.status_code, refused.json()["error"]["code"])
        _check_log(scripted, witnesses, alone)
    summary(f"rounds={num_rounds}", f"streams={num_rounds * NUM_STREAMS}, all told why")


@pytest.mark.chaos
def test_the_next_server_goes_on_with_what_a_full_disk_stopped(
    scripted: Lives, summary: Callable[..., None]
) -> None:
    """Who was told `store_failed` and comes back to the next server has all in the end."""
    witnesses, tally = _endless(scripted), Tally()
    with ThreadPoolExecutor(NUM_STREAMS) as pool:
        texts = list(pool.map(scripted.server.text, (w.body for w in witnesses)))
        reading = [pool.submit(witness.read) for witness in witnesses]
        eventually(partial(_flow, witnesses), "tokens flow")
        with _full(scripted, 1 << 16):
            for future in reading:
                future.result()
    kill(scripted.server.pid)()
    scripted.start_next()
    for witness, text in zip(witnesses, texts, strict=True):
        follower = Follower(scripted.port, witness.route)
        follower.events = [event for event in witness.events if event.id]
        tally.add(follower.follow(), text)
    summary(tally)
    tally.check()
