"""What `ProcessEngine` promises beyond the port: its child may die, hang or never come up."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from engines import (
    DEADLINE_S,
    Answer,
    a_request,
    an_endless_request,
    ask,
    ask_until_live,
    engine_children,
    eventually,
    process_engine,
)
from tiny_llama import build_tiny_llama

from streamwell.core.engine_state import EngineState
from streamwell.core.errors import EngineDied
from streamwell.core.types import FinishReason
from streamwell.engine.client import ProcessEngine
from streamwell.engine.launch import launch

pytestmark = pytest.mark.slow

#: Over the heartbeat of one second with room for a busy machine.
HANG_TIMEOUT_S = 4.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_llama(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def engine(runner: asyncio.Runner, folder: Path) -> Iterator[ProcessEngine]:
    """One engine for all tests; each of them leaves it up again."""
    engine = process_engine(folder, hang_timeout_s=HANG_TIMEOUT_S)

    async def start() -> None:
        engine.start()
        await engine.ready()

    runner.run(start())
    yield engine
    runner.run(engine.stop())
    assert [] == engine_children()


def test_a_prompt_is_computed_once_per_salt(runner: asyncio.Runner, engine: ProcessEngine) -> None:
    """Full blocks of 16 tokens before the last token are cached, for those of the same salt."""
    request = a_request("a", prompt_ids=tuple(range(10, 60)))

    async def scenario() -> list[int]:
        answers = [
            await ask(engine, replace(request, cache_salt=salt)) for salt in ("x", "x", "", "x", "")
        ]
        return [sum(delta.num_cached_tokens for delta in answer.deltas) for answer in answers]

    before = engine.stats()
    assert [0, 48, 0, 48, 48] == runner.run(scenario())
    stats = engine.stats()
    assert 250 == stats.num_prefix_queried_tokens - before.num_prefix_queried_tokens
    assert 144 == stats.num_prefix_hit_tokens - before.num_prefix_hit_tokens


def test_tokens_for_a_busy_consumer_come_merged(
    runner: asyncio.Runner, engine: ProcessEngine
) -> None:
    """What came while the consumer was away is one delta, and nothing of it is lost."""

    async def scenario() -> tuple[Answer, Answer]:
        slow, steps = Answer(), engine.stats().num_steps
        async with aclosing(engine.generate(a_request("slow", 40))) as deltas:
            slow.deltas.append(await anext(deltas))
            await eventually(
                lambda: engine.stats().num_steps >= steps + 40 and engine.stats().num_running == 0
            )
            slow.deltas += [delta async for delta in deltas]
        return slow, await ask(engine, a_request("eager", 40))

    slow, eager = runner.run(scenario())

    assert eager.token_ids == slow.token_ids
    assert 2 >= len(slow.deltas)
    assert [FinishReason.LENGTH] == slow.reasons


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=["a crash", "a hang"])
def test_a_lost_process_is_replaced(
    runner: asyncio.Runner, engine: ProcessEngine, fault: signal.Signals
) -> None:
    """Live requests end with `EngineDied`; a new process comes up by itself and serves."""

    async def scenario() -> tuple[list[Answer], Answer, Answer]:
        before = await ask(engine, a_request("before"))
        live = [await ask_until_live(engine, an_endless_request(f"r{i}")) for i in range(3)]
        (child,) = engine_children()
        child.send_signal(fault)
        await eventually(lambda: engine.status().state is EngineState.RESTARTING)
        await eventually(lambda: not child.is_running())
        answers = await asyncio.gather(*live)
        refused = await ask(engine, a_request("while it restarts"))
        assert isinstance(refused.error, EngineDied)
        await eventually(lambda: engine.status().state is EngineState.READY)
        return answers, before, await ask(engine, a_request("after"))

    answers, before, after = runner.run(scenario())

    assert [EngineDied] * 3 == [type(answer.error) for answer in answers]
    assert all(answer.token_ids for answer in answers)
    assert [FinishReason.LENGTH] == after.reasons
    assert before.token_ids == after.token_ids


def test_an_idle_engine_is_no_hung_engine(runner: asyncio.Runner, engine: ProcessEngine) -> None:
    """Heartbeats show that it lives; nobody kills it for having nothing to do."""
    (child,) = engine_children()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + 1.5 * HANG_TIMEOUT_S
        await eventually(lambda: loop.time() > end)

    runner.run(scenario())

    assert EngineState.READY is engine.status().state
    assert [child] == engine_children()


@pytest.mark.parametrize("launched", [False, True], ids=["launched by it", "launched before"])
@pytest.mark.parametrize("turns", [0, 1, 2, 5])
def test_stop_while_it_starts_leaves_no_process(
    runner: asyncio.Runner, folder: Path, launched: bool, turns: int
) -> None:
    """However early `stop` comes, the child is gone after it, and so is its socket."""
    children = engine_children()

    async def scenario() -> None:
        first = launch() if launched else None
        engine = process_engine(folder, first=first)
        engine.start()
        for _ in range(turns):
            await asyncio.sleep(0)  # one turn of the event loop
        await engine.stop()

    runner.run(scenario())

    assert children == engine_children()


def test_a_process_ends_when_its_server_is_gone() -> None:
    """A closed socket is a dead server: the engine process does not outlive it."""
    running = launch()
    running.connection.settimeout(DEADLINE_S)
    assert running.connection.recv(1)  # it is up, and has said so
    running.connection.shutdown(socket.SHUT_WR)

    exit_code = running.process.wait(DEADLINE_S)

    running.end()
    assert 0 == exit_code
