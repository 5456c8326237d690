"""Runs requests on an engine that is asyncio's, and answers in our protocol.

One message per turn of the event loop, whatever came in it: like one per step of our own engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from streamwell.core.engine_state import EngineStats
from streamwell.core.errors import EngineDied, SequenceFailed
from streamwell.core.types import FinishReason, GenerateRequest
from streamwell.engine.messages import (
    Abort,
    AdapterAdded,
    Add,
    AddAdapter,
    Command,
    RemoveAdapter,
    StepOutput,
    ToServer,
)
from streamwell.engine.sequence import SequenceOutput


class Source(Protocol):
    """What generates; `engine.Vllm`, or a stand-in in tests."""

    @property
    def is_dead(self) -> bool: ...

    def stats(self) -> EngineStats: ...

    def generate(self, request: GenerateRequest) -> AsyncGenerator[SequenceOutput, None]:
        """Closing it aborts the request.

        Raises:
            EngineDied: nothing will be generated any more.
            SequenceFailed: this request cannot run.
        """
        ...


class Host:
    """Takes commands, follows their requests, and tells the server what came."""

    def __init__(self, source: Source, send: Callable[[ToServer], None]) -> None:
        self._source = source
        self._send = send
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._outputs: list[SequenceOutput] = []
        self._is_flush_due = False
        self._num_steps_told = -1
        #: The source has died; what it said before has been told.
        self.died = asyncio.Event()

    def handle(self, command: Command) -> None:
        match command:
            case Add(request):
                task = asyncio.create_task(self._follow(request))
                self._tasks[request.request_id] = task
                task.add_done_callback(lambda _: self._forget(request.request_id))
            case Abort(request_id):
                if request_id in self._tasks:
                    self._tasks[request_id].cancel()
            case AddAdapter(number):
                self._send(AdapterAdded(number, "adapters are not served with vLLM here"))
            case RemoveAdapter():
                pass  # there is none

    def turn(self) -> None:
        """To be called every second: shows that an idle engine, or a long prompt, goes on."""
        if self._source.is_dead:
            self._die()
        elif not self._tasks or self._source.stats().num_steps != self._num_steps_told:
            self._flush()

    async def _follow(self, request: GenerateRequest) -> None:
        try:
            async with aclosing(self._source.generate(request)) as outputs:
                async for output in outputs:
                    self._put(output)
        except EngineDied:
            self._die()
        except SequenceFailed as error:
            self._put(SequenceOutput(request.request_id, (), FinishReason.ERROR, str(error)))

    def _forget(self, request_id: str) -> None:
        del self._tasks[request_id]
        self._flush_soon()

    def _put(self, output: SequenceOutput) -> None:
        self._outputs.append(output)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        outputs, self._outputs = tuple(self._outputs), []
        stats = self._source.stats() if self._tasks else _idle(self._source.stats())
        self._num_steps_told = stats.num_steps
        self._send(StepOutput(outputs, stats))

    def _die(self) -> None:
        if not self.died.is_set():
            self._flush()
            self.died.set()


def _idle(stats: EngineStats) -> EngineStats:
    """vLLM tells of its steps alone: after the last request has left there is none that tells."""
    return replace(stats, num_running=0, num_waiting=0, num_used_blocks=0)
