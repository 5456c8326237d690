"""What the host of vLLM makes of commands, over a source that is scripted; runs without vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field

from streamwell.backends.vllm.host import Host
from streamwell.core.engine_state import EngineStats
from streamwell.core.errors import EngineDied, EngineError, SequenceFailed
from streamwell.core.types import FinishReason, GenerateRequest, SamplingParams
from streamwell.engine.messages import (
    Abort,
    AdapterAdded,
    Add,
    AddAdapter,
    RemoveAdapter,
    StepOutput,
    ToServer,
)
from streamwell.engine.sequence import SequenceOutput

BUSY = EngineStats(num_running=1, num_waiting=1, num_used_blocks=3, num_blocks=9, num_steps=7)


@dataclass
class Source:
    """Says what tests put into it."""

    said: asyncio.Queue[SequenceOutput | EngineError] = field(default_factory=asyncio.Queue)
    is_dead: bool = False
    num_closed: int = 0
    now: EngineStats = BUSY

    def stats(self) -> EngineStats:
        return self.now

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[SequenceOutput, None]:
        try:
            while True:
                said = await self.said.get()
                if isinstance(said, EngineError):
                    raise said
                yield said
                if said.finish_reason is not None:
                    return
        finally:
            self.num_closed += 1


def _add(name: str) -> Add:
    sampling = SamplingParams(max_tokens=9)
    return Add(GenerateRequest(request_id=name, prompt_ids=(5,), sampling=sampling))


def _play(play: Callable[[Host, Source], Awaitable[None]]) -> tuple[list[ToServer], Source, Host]:
    """Run a scene to its end; gives what the server was sent."""
    sent: list[ToServer] = []

    async def scene() -> tuple[Source, Host]:
        source = Source()
        host = Host(source, sent.append)
        await play(host, source)
        await _turns()
        return source, host

    source, host = asyncio.run(scene())
    return sent, source, host


async def _turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _outputs(sent: list[ToServer]) -> list[SequenceOutput]:
    return [each for step in sent if isinstance(step, StepOutput) for each in step.outputs]


def test_outputs_of_a_turn_travel_together() -> None:
    """All that came at once is one message; with the last request gone, nothing is in use."""
    one, other = SequenceOutput("a", (1,)), SequenceOutput("a", (2,), FinishReason.STOP)

    async def play(host: Host, source: Source) -> None:
        source.said.put_nowait(one)
        source.said.put_nowait(other)
        host.handle(_add("a"))

    sent, source, _ = _play(play)

    assert StepOutput((one, other), BUSY) == sent[0]
    last = sent[-1]
    assert isinstance(last, StepOutput)
    assert (0, 0, 0) == (
        last.stats.num_running,
        last.stats.num_waiting,
        last.stats.num_used_blocks,
    )
    assert (9, 7, 1) == (last.stats.num_blocks, last.stats.num_steps, source.num_closed)


def test_an_abort_closes_the_request() -> None:
    """It says nothing more; one that has ended, or never was, is none of its business."""

    async def play(host: Host, source: Source) -> None:
        host.handle(_add("a"))
        await _turns()
        host.handle(Abort("a"))
        host.handle(Abort("unknown"))
        await _turns()
        source.said.put_nowait(SequenceOutput("a", (1,)))
        host.handle(Abort("a"))

    sent, source, host = _play(play)

    assert ([], 1, False) == (_outputs(sent), source.num_closed, host.died.is_set())


def test_a_request_fails_alone() -> None:
    """Its error is its last word; the engine lives."""

    async def play(host: Host, source: Source) -> None:
        source.said.put_nowait(SequenceFailed("no such token"))
        host.handle(_add("a"))

    sent, _, host = _play(play)

    assert [SequenceOutput("a", (), FinishReason.ERROR, "no such token")] == _outputs(sent)
    assert not host.died.is_set()


def test_a_death_comes_after_the_last_tokens() -> None:
    """What was said before the engine died is told; then the process may end."""
    token = SequenceOutput("a", (1,))

    async def play(host: Host, source: Source) -> None:
        source.said.put_nowait(token)
        source.said.put_nowait(EngineDied())
        host.handle(_add("a"))
        await host.died.wait()

    sent, _, _ = _play(play)

    assert [token] == _outputs(sent)


def test_a_death_of_an_idle_engine_is_noticed() -> None:
    """Nobody needs to ask for something first."""

    async def play(host: Host, source: Source) -> None:
        source.is_dead = True
        host.turn()

    assert _play(play)[2].died.is_set()


def test_a_turn_shows_that_it_goes_on() -> None:
    """When idle, and when steps are taken that bring no token; not when a step hangs."""

    async def play(host: Host, source: Source) -> None:
        host.turn()  # idle
        host.handle(_add("a"))
        await _turns()
        host.turn()  # the step that was told of already
        source.now = EngineStats(num_steps=8)
        host.turn()  # a long prompt
        host.turn()  # and no step since
        host.handle(Abort("a"))

    sent, _, _ = _play(play)

    steps = [message.stats.num_steps for message in sent if isinstance(message, StepOutput)]
    assert [7, 8, 8] == steps  # the last one tells that the request has gone


def test_adapters_are_refused() -> None:
    """Who asks for one is told; taking one away is harmless."""

    async def play(host: Host, source: Source) -> None:
        host.handle(AddAdapter(5, "x", "folder"))
        host.handle(RemoveAdapter("x"))

    (answer,) = _play(play)[0]
    assert isinstance(answer, AdapterAdded)
    assert answer.number == 5
    assert answer.error
