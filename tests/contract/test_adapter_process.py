"""What `ProcessEngine` promises of adapters beyond the port: they outlive its child."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from engines import DEADLINE_S, Answer, ask, engine_children, eventually, process_engine
from tiny_llama import build_tiny_llama
from tiny_lora import a_greedy_request, build_tiny_lora

from streamwell.core.engine_state import EngineState
from streamwell.core.errors import EngineDied, LoadError, SequenceFailed
from streamwell.core.types import FinishReason
from streamwell.engine.client import ProcessEngine

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_llama(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of an adapter."""
    return str(build_tiny_lora(tmp_path_factory.mktemp("one"), 1))


@pytest.fixture(scope="module")
def shared(runner: asyncio.Runner, model: Path) -> Iterator[ProcessEngine]:
    engine = process_engine(model, enable_lora=True)

    async def start() -> None:
        engine.start()
        await engine.ready()

    runner.run(start())
    yield engine
    runner.run(engine.stop())


@pytest.fixture
def engine(shared: ProcessEngine, runner: asyncio.Runner) -> Iterator[ProcessEngine]:
    """One engine for all tests; each of them leaves it up and without adapters."""
    yield shared
    for name in ("one", "other", "third"):
        runner.run(shared.remove_adapter(name))


def test_a_folder_that_cannot_be_loaded_is_refused(
    runner: asyncio.Runner, engine: ProcessEngine, one: str, tmp_path: Path
) -> None:
    """`LoadError` says why; the engine and the adapters that it has go on."""
    broken = build_tiny_lora(tmp_path)
    (broken / "adapter_model.safetensors").unlink()

    async def scenario() -> Answer:
        await engine.add_adapter("one", one)
        with pytest.raises(LoadError, match=r"no adapter_model\.safetensors"):
            await engine.add_adapter("other", str(broken))
        return await ask(engine, a_greedy_request("one"))

    assert [FinishReason.LENGTH] == runner.run(scenario()).reasons


async def lose_process(engine: ProcessEngine) -> None:
    """Kill the engine process, and wait until the next one is up."""
    (child,) = engine_children()
    child.send_signal(signal.SIGKILL)
    await eventually(lambda: engine.status().state is EngineState.RESTARTING)
    await engine.ready()


def test_adapters_outlive_the_process(
    runner: asyncio.Runner, engine: ProcessEngine, one: str, tmp_path: Path
) -> None:
    """The next process has those that were there; what is unreadable by then is lost alone."""
    perishable = build_tiny_lora(tmp_path / "perishable", 3)

    async def tokens(adapter: str) -> list[int]:
        answer = await ask(engine, a_greedy_request(adapter))
        assert answer.error is None, answer.error
        return answer.token_ids

    async def scenario() -> None:
        await engine.add_adapter("one", one)
        await engine.add_adapter("other", str(perishable))
        before = [await tokens(name) for name in ("", "one", "other")]
        assert 3 == len({str(ids) for ids in before})
        (perishable / "adapter_config.json").rename(perishable / "kept")
        dying = asyncio.create_task(engine.add_adapter("third", one))
        await asyncio.sleep(0)
        (child,) = engine_children()
        child.send_signal(signal.SIGSTOP)  # it cannot answer any more
        await lose_process(engine)
        with pytest.raises(EngineDied):
            await asyncio.wait_for(dying, DEADLINE_S)

        assert before[:2] == [await tokens(name) for name in ("", "one")]
        lost = await ask(engine, a_greedy_request("other"))
        assert isinstance(lost.error, SequenceFailed)
        assert "adapter_config.json" in str(lost.error)
        never = await ask(engine, a_greedy_request("third"))
        assert "there is no adapter 'third'" in str(never.error)

        (perishable / "kept").rename(perishable / "adapter_config.json")
        await engine.add_adapter("other", str(perishable))
        assert before == [await tokens(name) for name in ("", "one", "other")]

    runner.run(scenario())


def test_an_adapter_that_is_removed_while_the_engine_restarts_stays_away(
    runner: asyncio.Runner, engine: ProcessEngine, one: str
) -> None:
    """The next process has been told to load it already, and is told to forget it."""

    async def scenario() -> Answer:
        await engine.add_adapter("one", one)
        (child,) = engine_children()
        child.send_signal(signal.SIGKILL)
        await eventually(lambda: engine.status().state is EngineState.LOADING)
        await engine.remove_adapter("one")
        await engine.ready()
        return await ask(engine, a_greedy_request("one"))

    assert isinstance(runner.run(scenario()).error, SequenceFailed)


def test_adapters_are_off_unless_asked_for(runner: asyncio.Runner, model: Path, one: str) -> None:
    """Without `--enable-lora` an engine takes none, and says which flag is missing."""
    engine = process_engine(model)

    async def scenario() -> Answer:
        engine.start()
        await engine.ready()
        with pytest.raises(LoadError, match="--enable-lora"):
            await engine.add_adapter("one", one)
        answer = await ask(engine, a_greedy_request("one"))
        await engine.stop()
        return answer

    assert isinstance(runner.run(scenario()).error, SequenceFailed)
