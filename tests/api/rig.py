"""The services of a server in one event loop: scripted engine, memory store, no sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp

from streamwell.backends.scripted import Faults, Script, ScriptedEngine
from streamwell.core.conversation import NewItems
from streamwell.core.messages import ChatOptions, PartKind
from streamwell.core.ports import Store
from streamwell.core.types import (
    EventKind,
    GenerateRequest,
    Message,
    RunEvent,
    RunKind,
    RunRequest,
    RunSpec,
    SamplingOptions,
    TokenDelta,
)
from streamwell.server.app import create_app
from streamwell.server.deps import Services, UnknownFields
from streamwell.server.keys import KeyRing
from streamwell.server.presets import load_presets
from streamwell.service.admission import Admission
from streamwell.service.conversations import Conversations
from streamwell.service.models import ModelTable
from streamwell.service.reader import Reader
from streamwell.service.run_log import RunLog
from streamwell.service.runs import RunService
from streamwell.service.served_model import Encoder, ServedModel
from streamwell.store.memory import MemoryStore
from streamwell.telemetry import Metrics, configure_logging
from streamwell.text.response_parser import ResponseParser

#: Only ends a test that would hang.
DEADLINE_S = 10


class Letters:
    """An encoder whose tokens are characters; beyond ASCII the engine has none."""

    vocab_size = 0x110000
    has_chat_template = True

    def encode_chat(self, messages: Sequence[Message], options: ChatOptions) -> list[int]:
        return self.encode_text("".join(message.content for message in messages))

    def encode_text(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def answer_parser(
        self, prompt_ids: Sequence[int], kinds: Sequence[PartKind]
    ) -> ResponseParser | None:
        return None

    def close(self) -> None:
        """There is nothing to give back."""


class FailingStore(MemoryStore):
    """A store that fails as often as it is told to, at its next commits or trials."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Exception] = []
        #: Runs that were written without an end.
        self.unended: set[str] = set()

    async def check_writable(self) -> None:
        self._fail()
        await super().check_writable()

    async def commit(
        self,
        runs: Sequence[RunSpec],
        events: Sequence[RunEvent],
        items: Sequence[NewItems] = (),
    ) -> None:
        self._fail()
        await super().commit(runs, events, items)
        self.unended |= {spec.run_id for spec in runs}
        self.unended -= {event.run_id for event in events if event.kind is EventKind.END}

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)


def alphabet(_prompt_ids: Sequence[int], _seed: int, index: int) -> int:
    """The alphabet, again and again."""
    return 97 + index % 26


class SteppedEngine(ScriptedEngine):
    """A scripted engine that takes each of its steps only when it is allowed to."""

    def __init__(self, script: Script = alphabet, vocab_size: int = 128, **options: object) -> None:
        super().__init__(script, vocab_size=vocab_size, **options)  # type: ignore[arg-type]
        self._permits = asyncio.Semaphore(0)
        self.num_open = 0
        self.request_ids: list[str] = []
        self.adapters: list[str] = []

    def allow(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self._permits.release()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenDelta, None]:
        self.num_open += 1
        self.request_ids.append(request.request_id)
        self.adapters.append(request.adapter)
        stream = super().generate(request)
        try:
            await self._permits.acquire()
            async for delta in stream:
                yield delta
                if delta.finish_reason is not None:
                    return
                await self._permits.acquire()
        finally:
            self.num_open -= 1
            await stream.aclose()


@dataclass
class Rig:
    """What a test can look at and turn."""

    engine: SteppedEngine
    store: FailingStore
    admission: Admission
    services: Services
    runs: RunService = field(init=False)
    app: ASGIApp = field(init=False)

    def __post_init__(self) -> None:
        self.runs = self.services.runs
        self.app = create_app(self.services, max_body_bytes=1 << 20)


async def until(condition: Callable[[], bool]) -> None:
    """Let the other tasks work until this is so."""
    while not condition():
        await turns(1)


async def turns(count: int = 50) -> None:
    """Let the other tasks do all that they can do."""
    for _ in range(count):
        await asyncio.sleep(0)


def request(prompt: str = "ab", *, n: int = 1, max_tokens: int = 5, model: str = "") -> RunRequest:
    return RunRequest(
        kind=RunKind.COMPLETION,
        model=model,
        prompts=(prompt,),
        num_choices=n,
        options=SamplingOptions(max_tokens=max_tokens, seed=1),
    )


@dataclass
class Answer:
    """What an application sent to one request."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.bodies.append(message["body"])

    @property
    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(b"".join(self.bodies))
        return value


async def post(
    rig: Rig,
    path: str,
    body: dict[str, Any],
    answer: Answer | None = None,
    *,
    leave: asyncio.Event | None = None,
) -> Answer:
    """Send a request to the application; the client leaves at `leave`, or after the answer.

    `answer` can be looked at while it comes.
    """
    answer = answer or Answer()
    pending = [{"type": "http.request", "body": json.dumps(body).encode()}]
    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    scope |= {"query_string": b"", "http_version": "1.1", "scheme": "http", "root_path": ""}

    async def receive() -> dict[str, Any]:
        if pending:
            return pending.pop()
        await (leave or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    await create_app(rig.services, max_body_bytes=1000)(scope, receive, answer.send)
    return answer


async def read(reader: Reader) -> list[RunEvent]:
    """All events of a run, up to its end; the reader stays open."""
    return [event async for events in reader.events() for event in events]


def text_of(events: Sequence[RunEvent], index: int = 0) -> str:
    return "".join(event.text for event in events if event.index == index)


def services_of(
    runs: RunService,
    table: ModelTable,
    store: Store,
    metrics: Metrics,
    keys: tuple[str, ...] = (),
) -> Services:
    """What routes depend on, with the presets in the box."""
    return Services(
        models=table,
        runs=runs,
        conversations=Conversations(store, runs),
        metrics=metrics,
        keys=KeyRing(keys),
        unknown_fields=UnknownFields(),
        presets=load_presets(),
        ping_s=60.0,
        version="0",
    )


def run(
    test: Callable[[Rig], Awaitable[None]],
    *,
    limit: int = 8,
    faults: Faults | None = None,
    keys: tuple[str, ...] = (),
    grace_s: float = 0.0,
    engine: SteppedEngine | None = None,
    make_encoder: Callable[[], Encoder] = Letters,
) -> None:
    """Run a test with services that are up, and check afterwards that the books balance.

    `faults` are those of an engine that is not given.
    """

    configure_logging("critical", as_json=True)

    engine = engine or SteppedEngine(faults=faults)

    async def main() -> None:
        model = ServedModel(("m",), engine, make_encoder, {})
        metrics = Metrics("0", lambda: {"m": engine.stats()})
        store, admission = FailingStore(), Admission(limit)
        log = RunLog(store)
        table = ModelTable([model])
        runs = RunService(table, log, admission, metrics, grace_s=grace_s)
        services = services_of(runs, table, store, metrics, keys)
        rig = Rig(engine, store, admission, services)
        await log.open()
        await model.load()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await test(rig)
            await turns()
        finally:
            await engine.stop()
            await log.close()
        assert (0, 0) == (admission.num_live, engine.num_open)

    asyncio.run(main())
