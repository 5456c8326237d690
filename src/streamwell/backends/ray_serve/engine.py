"""The gateway's side: the `Engine` port over replicas that somebody else starts and stops.

Rules:
- A replica that goes away ends its requests with `EngineDied`; whoever goes on is sent to another.
- After that `ready` waits for a report that is younger than the loss, so that nobody is sent to
  replicas that may be gone as well.
- That all replicas have failed is final only after a while: Ray puts others in their place.
- A request that is closed is aborted by its id, beside what Ray does. Aborts of one turn of the
  event loop travel together.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import count
from secrets import token_hex
from typing import Protocol

import msgspec
import structlog

from streamwell.backends.ray_serve.messages import (
    AdapterAnswer,
    Ask,
    Failed,
    Report,
    Tokens,
    decode_answer,
    encode,
)
from streamwell.core.engine_state import EngineInfo, EngineState, EngineStats, EngineStatus
from streamwell.core.errors import EngineDied, LoadError, SequenceFailed
from streamwell.core.types import GenerateRequest, TokenDelta
from streamwell.engine.mailbox import Mailbox

log = structlog.get_logger()

#: Seconds between two looks at the replicas, and those that they have to answer.
REPORT_S, REPORT_TIMEOUT_S = 0.5, 10.0
#: Seconds that failed replicas have to be replaced in; Ray needs some 10.
PATIENCE_S = 60.0


class Replicas(Protocol):
    """See `handle.Replicas`."""

    def generate(self, body: bytes, /) -> AsyncGenerator[bytes, None]: ...

    async def abort(self, request_ids: Sequence[str], /) -> None: ...

    async def reports(self, timeout_s: float, /) -> list[Report]: ...

    async def add_adapter(self, name: str, path: str, /) -> list[AdapterAnswer]: ...

    async def remove_adapter(self, name: str, /) -> None: ...


class RayServeEngine:
    """All replicas of an engine deployment as one engine."""

    def __init__(
        self, replicas: Replicas, *, report_s: float = REPORT_S, patience_s: float = PATIENCE_S
    ) -> None:
        """`report_s` is how often replicas are looked at; `patience_s`, how long they may fail."""
        self._replicas = replicas
        self._report_s = report_s
        self._patience_s = patience_s
        #: When all had failed for the first time since one was ready, in the event loop's time.
        self._failed_s = math.inf
        self._status = EngineStatus(EngineState.STARTING)
        self._reports: list[Report] = []
        self._loaded: asyncio.Future[EngineInfo] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._look_now = asyncio.Event()
        self._mailboxes: set[Mailbox] = set()
        #: Names for requests that no gateway gives twice: replicas remember aborts by them.
        self._names = (f"{prefix}-{number}" for prefix in [token_hex(8)] for number in count())
        self._to_abort: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        #: Folders of adapters by name.
        self._adapters: dict[str, str] = {}

    def start(self) -> None:
        self._status, self._failed_s = _waiting(was_up=False), math.inf
        if self._watching is not None:
            self._watching.cancel()
        if self._loaded is None or self._loaded.done():
            self._loaded = asyncio.get_running_loop().create_future()
        self._watching = asyncio.create_task(self._watch(), name="ray replicas")

    async def stop(self) -> None:
        """The replicas stay: they are the cluster's, and other gateways use them."""
        self._status, self._reports = EngineStatus(EngineState.STOPPED), []
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._loaded is not None and not self._loaded.done():
            self._fail_loading(EngineDied("The engine was stopped."))
        for mailbox in self._mailboxes:
            mailbox.fail(EngineDied())
        await asyncio.sleep(0)  # let those who waited leave, and their aborts be sent
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def ready(self) -> EngineInfo:
        if self._loaded is None:
            raise EngineDied("The engine was not started.")
        return await asyncio.shield(self._loaded)

    def status(self) -> EngineStatus:
        return self._status

    def stats(self) -> EngineStats:
        """Of all replicas together, as of the last look."""
        names = EngineStats.__dataclass_fields__
        sums = {name: sum(getattr(r.stats, name) for r in self._reports) for name in names}
        return EngineStats(**sums)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenDelta, None]:
        if self._status.state is not EngineState.READY:
            raise EngineDied("The engine is not up.")
        request = replace(request, request_id=next(self._names))
        mailbox = Mailbox()
        self._mailboxes.add(mailbox)
        reading = asyncio.create_task(self._read(request, mailbox))
        self._tasks.add(reading)
        reading.add_done_callback(self._tasks.discard)
        reason = None
        try:
            while reason is None:
                delta = await mailbox.take()
                reason = delta.finish_reason
                yield delta
        finally:
            self._mailboxes.discard(mailbox)
            if reason is None and not reading.done():
                self._abort(request.request_id)
                reading.cancel()

    async def add_adapter(self, name: str, path: str) -> None:
        if self._status.state is not EngineState.READY:
            raise EngineDied("The engine is not up.")
        answers = await self._replicas.add_adapter(name, path)
        if all(answer.has_died for answer in answers):
            raise EngineDied
        for answer in answers:
            # one whose engine is being restarted gets the folder with each request
            if answer.error is not None and not answer.has_died:
                raise (ValueError if answer.is_taken else LoadError)(answer.error)
        self._adapters.setdefault(name, path)

    async def remove_adapter(self, name: str) -> None:
        """Here, and on replicas that do not use it: requests of other gateways keep it."""
        self._adapters.pop(name, None)
        await self._replicas.remove_adapter(name)

    async def _read(self, request: GenerateRequest, mailbox: Mailbox) -> None:
        """Bring what a replica answers to the mailbox, to the end of the request."""
        ask = Ask(request, self._adapters.get(request.adapter, ""))
        try:
            async with aclosing(self._replicas.generate(encode(ask))) as bodies:
                async for body in bodies:
                    self._take(decode_answer(body), mailbox)
            mailbox.fail(EngineDied())  # unless it has ended: it was aborted there
        except EngineDied as error:
            self._lose(mailbox, error)
        except msgspec.ValidationError as error:
            log.exception("a replica of another version?")
            mailbox.fail(SequenceFailed(str(error)))

    def _take(self, answer: Tokens | Failed, mailbox: Mailbox) -> None:
        match answer:
            case Tokens(delta):
                mailbox.put(delta)
            case Failed(message, has_died=False):
                mailbox.fail(SequenceFailed(message))
            case Failed(message):
                self._lose(mailbox, EngineDied(message))

    def _lose(self, mailbox: Mailbox, error: EngineDied) -> None:
        """A replica, or its engine, is gone: look at once who is left."""
        if self._loaded is not None and self._loaded.done():
            self._loaded = asyncio.get_running_loop().create_future()
        self._look_now.set()
        mailbox.fail(error)

    def _abort(self, request_id: str) -> None:
        if not self._to_abort:
            asyncio.get_running_loop().call_soon(self._send_aborts)
        self._to_abort.append(request_id)

    def _send_aborts(self) -> None:
        request_ids, self._to_abort = self._to_abort, []
        task = asyncio.create_task(self._replicas.abort(request_ids))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self) -> None:
        while True:
            self._look_now.clear()
            loaded = self._loaded
            reports = await self._replicas.reports(REPORT_TIMEOUT_S)
            if loaded is self._loaded:  # else a replica was lost meanwhile: these may be older
                self._see(reports)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look_now.wait(), self._report_s)

    def _see(self, reports: list[Report]) -> None:
        was_up = self._status.state in (EngineState.READY, EngineState.RESTARTING)
        self._reports = reports
        self._status = _status_of([report.status for report in reports], was_up=was_up)
        if self._status.state is EngineState.READY:
            self._failed_s = math.inf
        elif self._status.state is EngineState.FAILED and not self._is_out_of_patience():
            self._status = _waiting(was_up=was_up)
        if self._loaded is None:
            return
        infos = [r.info for r in reports if r.status.state is EngineState.READY and r.info]
        if self._loaded.done() and infos and self._loaded.exception() is not None:
            self._loaded = asyncio.get_running_loop().create_future()  # another replica could
        if infos and not self._loaded.done():
            self._loaded.set_result(infos[0])
        elif self._status.state is EngineState.FAILED and not self._loaded.done():
            self._fail_loading(LoadError(self._status.error))

    def _is_out_of_patience(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        self._failed_s = min(self._failed_s, now_s)
        return now_s >= self._failed_s + self._patience_s

    def _fail_loading(self, error: Exception) -> None:
        if self._loaded is not None:
            self._loaded.set_exception(error)
            self._loaded.exception()  # it may be that nobody waits for it


def _waiting(*, was_up: bool) -> EngineStatus:
    state = EngineState.RESTARTING if was_up else EngineState.STARTING
    return EngineStatus(state, "waiting for a replica")


def _status_of(statuses: Sequence[EngineStatus], *, was_up: bool) -> EngineStatus:
    """One status for all: up if one is, failed if all are."""
    if not statuses:
        return _waiting(was_up=was_up)
    best_first = [EngineState.READY, EngineState.RESTARTING, EngineState.LOADING]
    for state in (*best_first, EngineState.STARTING):
        for status in statuses:
            if status.state is state:
                return status
    return statuses[0]
