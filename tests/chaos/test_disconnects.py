"""Clients that leave in every phase and every way: nothing is left of them, or they come back."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from client import Connection, Follower, Frames
from harness import eventually, stays
from ops import Lives
from rounds import repeated
from routes import Completions, Event

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

CHAT = "/v1/chat/completions"
NUM_PLACES, NUM_AT_A_TIME, BLOCK_SIZE = 4, 16, 16
#: The long ones take several steps of prefill.
PROMPTS = [
    f"{'The mill stands by the river. ' * count}Tell me a story about a {animal}."
    for count, animal in ((0, "fox"), (1, "cat"), (20, "dog"), (40, "bear"))
]
Phase = Literal["half sent", "unread", "waiting", "first event", "decode", "last token"]
How = Literal["fin", "rst", "half"]
PHASES: list[Phase] = ["half sent", "unread", "first event", "decode", "last token"]
UNSTREAMED: list[Phase] = ["half sent", "unread", "waiting"]


@dataclass(slots=True)
class Visit:
    """One client that leaves, and what it saw until then."""

    prompt: str
    body: dict[str, Any]
    key: str
    is_streamed: bool
    phase: Phase
    how: How
    num_events: int
    events: list[Event] = field(default_factory=list)

    @property
    def route(self) -> Completions:
        return Completions(CHAT, self.body, self.key)


class Observer:
    """A stream that nobody hinders; what it has received is time, measured in tokens."""

    def __init__(self, port: int) -> None:
        self.num_events = 0
        self._port = port
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._observe)
        self._thread.start()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _observe(self) -> None:
        prompt = {"messages": [{"role": "user", "content": "Tell me a story about a hen."}]}
        while not self._is_over.is_set():
            frames = Frames()
            with Connection(self._port, Completions(CHAT, prompt, "").ask(None)) as connection:
                assert 200 == connection.status()
                for payload in connection.payloads():
                    self.num_events += len(frames.push(payload))
                    if self._is_over.is_set():
                        return


def _visits(draw: random.Random, num: int, options: dict[str, Any]) -> Iterator[Visit]:
    for _ in range(num):
        is_streamed = draw.random() < 0.7
        prompt = draw.choice(PROMPTS)
        body = options | {"messages": [{"role": "user", "content": prompt}]}
        phase = draw.choice(PHASES if is_streamed else UNSTREAMED)
        if phase == "last token":
            body["max_tokens"] = 3
        how: How = draw.choice(["fin", "rst", "half"])
        key = f"visit-{draw.random()}-{random.random()}"
        yield Visit(prompt, body, key, is_streamed, phase, how, draw.randrange(2, 20))


def _carry_out(port: int, visit: Visit, observer: Observer) -> None:
    """Come, and leave as it is planned."""
    ask = visit.route.ask(None)
    if not visit.is_streamed and ask.body:
        ask.body["stream"] = False
    payload = ask.encode()
    if visit.phase == "half sent":
        payload = payload[: len(payload) - 10]
    with closing(Connection(port, payload)) as connection:
        if visit.phase == "waiting":
            until = observer.num_events + visit.num_events
            eventually(lambda: observer.num_events >= until, "time goes on")
        elif visit.phase in ("first event", "decode", "last token"):
            _read(connection, visit)
        if visit.how != "half":
            connection.close(visit.how)
            return
        connection.half_close()
        connection.read_out()  # the server hangs up too


def _read(connection: Connection, visit: Visit) -> None:
    """Read as far as the visit goes, byte by byte at its end."""
    assert 200 == connection.status()
    frames = Frames()
    while not connection.is_ended:
        for payload in connection.payloads(1 if visit.phase == "last token" else 64):
            visit.events += frames.push(payload)
        if visit.phase == "first event" and visit.events:
            return
        if visit.phase == "decode" and len(visit.events) > visit.num_events:
            return
        if any('"finish_reason":"' in event.data for event in visit.events):
            return


def _storm(lives: Lives, visits: list[Visit]) -> None:
    with closing(Observer(lives.port)) as observer, ThreadPoolExecutor(NUM_AT_A_TIME) as pool:
        list(pool.map(lambda visit: _carry_out(lives.port, visit, observer), visits))


def _stands_still(lives: Lives) -> bool:
    num_steps = lives.server.metrics()["engine_steps_total"]
    return stays(lambda: num_steps == lives.server.metrics()["engine_steps_total"], for_s=1.0)


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Lives]]:
    """Start a server with four places."""
    started: list[Lives] = []

    def start(*flags: str) -> Lives:
        few = ("--max-num-seqs", str(NUM_PLACES))
        started.append(Lives(tmp_path_factory.mktemp("chaos"), *few, *flags))
        return started[-1]

    yield start
    for lives in started:
        lives.close()


@pytest.mark.parametrize("num_visits", repeated(full=500, short=30))
def test_without_grace_nothing_is_left(
    start: Callable[..., Lives],
    draw: random.Random,
    summary: Callable[..., None],
    num_visits: int,
) -> None:
    """Whoever leaves has left: no place, no block, no step more, and an end in the log."""
    lives = start("--resume-grace-s", "0")
    options = {"max_tokens": 1500, "ignore_eos": True, "temperature": 0}
    visits = list(_visits(draw, num_visits, options))
    _storm(lives, visits)

    eventually(lives.server.is_idle, "no sequence and no block is left")
    assert _stands_still(lives)
    seen = [visit for visit in visits if visit.events]
    for visit in seen:
        run = lives.server.client.get(f"/v1/runs/{visit.events[0].run_id}").json()
        is_short = visit.phase == "last token"
        assert run["status"] in (("completed", "cancelled") if is_short else ("cancelled",))
        follower = Follower(lives.port, visit.route)
        follower.events = list(visit.events)
        follower.follow()
        assert 0 == follower.num_breaks
        assert follower.replay() == follower.events
    assert lives.server.is_idle()
    summary(f"disconnects={num_visits}", f"runs that a client knew={len(seen)}", "survivors=0")
    assert "Traceback" not in lives.log()


@pytest.mark.parametrize("num_visits", repeated(full=500, short=30))
def test_with_grace_they_come_back(
    start: Callable[..., Lives],
    draw: random.Random,
    summary: Callable[..., None],
    num_visits: int,
) -> None:
    """Half of them come back, and have in the end what an uncut run gives."""
    lives = start()
    options = {"max_tokens": 60, "ignore_eos": True, "temperature": 0}
    visits = list(_visits(draw, num_visits, options))
    bodies = {json.dumps(visit.body): visit.body for visit in visits}
    texts = {name: lives.server.text(body, CHAT) for name, body in bodies.items()}
    before = lives.server.metrics()

    def come_back(visit: Visit) -> None:
        _carry_out(lives.port, visit, observer)
        if draw.random() < 0.5:
            equal.append(_come_back(lives, visit) == texts[json.dumps(visit.body)])

    equal: list[bool] = []
    with closing(Observer(lives.port)) as observer, ThreadPoolExecutor(NUM_AT_A_TIME) as pool:
        list(pool.map(come_back, visits))
    eventually(lives.server.is_idle, "no sequence and no block is left")
    assert _stands_still(lives)
    metrics = lives.server.metrics()
    queries, hits = (
        metrics[f"prefix_cache_{name}_total"] - before[f"prefix_cache_{name}_total"]
        for name in ("queries", "hits")
    )
    summary(
        f"disconnects={num_visits}",
        f"came back={len(equal)} equal={sum(equal)}",
        f"prompt tokens found in the cache={hits / queries:.0%}",
    )
    assert all(equal)
    assert "Traceback" not in lives.log()


def _come_back(lives: Lives, visit: Visit) -> str:
    """The whole text, after what was seen; without an event, of a request under the same key."""
    if not visit.is_streamed:
        headers = {"Idempotency-Key": visit.key}
        answer = lives.server.post(CHAT, visit.body | {"stream": False}, headers=headers).json()
        text: str = answer["choices"][0]["message"]["content"]
        return text
    follower = Follower(lives.port, visit.route)
    follower.events = list(visit.events)
    follower.follow()
    assert 0 == follower.num_breaks
    return follower.text


@pytest.mark.parametrize("num_rounds", repeated(full=20, short=3))
def test_who_comes_back_finds_the_prompt_computed(
    lives: Lives, draw: random.Random, summary: Callable[..., None], num_rounds: int
) -> None:
    """All full blocks of prompt and answer are in the cache: going on computes the rest alone."""
    options = {"max_tokens": 60, "ignore_eos": True, "temperature": 0}
    missed = []
    for _ in range(num_rounds):
        visit = next(_visits(draw, 1, options))
        visit.is_streamed, visit.phase, visit.how = True, "decode", "fin"
        with closing(Connection(lives.port, visit.route.ask(None))) as connection:
            _read(connection, visit)
        eventually(lives.server.is_idle, "the run is paused")
        before = lives.server.metrics()
        _come_back(lives, visit)
        after = lives.server.metrics()
        queries, hits = (
            after[f"prefix_cache_{name}_total"] - before[f"prefix_cache_{name}_total"]
            for name in ("queries", "hits")
        )
        missed.append(queries - hits)
    summary(f"rounds={num_rounds}", f"prompt tokens computed again: {max(missed):.0f} at most")
    assert max(missed) < 2 * BLOCK_SIZE
