"""What the supervisor of the engine process does and says, over processes that are only sockets."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from streamwell.core.engine_state import EngineInfo, EngineState, EngineStats
from streamwell.core.errors import EngineDied, LoadError
from streamwell.core.types import FinishReason, GenerateRequest, SamplingParams
from streamwell.engine import came_up, client
from streamwell.engine.backoff import SOUND_STEPS, Backoff
from streamwell.engine.client import ProcessEngine
from streamwell.engine.connection import HEARTBEAT_S
from streamwell.engine.launch import EngineProcess
from streamwell.engine.messages import (
    Alive,
    EngineConfig,
    Loaded,
    LoadFailed,
    StepOutput,
    ToServer,
    encode_frame,
)
from streamwell.engine.sequence import SequenceOutput

INFO = EngineInfo(
    max_model_len=20, vocab_size=9, num_blocks=9, block_size=4, dtype="float32", device="cpu"
)
CONFIG = EngineConfig(
    model_path="nowhere",
    device="cpu",
    dtype="float32",
    max_model_len=None,
    max_num_seqs=1,
    max_num_batched_tokens=1,
    kv_cache_bytes=None,
    block_size=16,
    num_threads=1,
)
DEADLINE_S = 10
HANG_S = 5 * HEARTBEAT_S
REQUEST = GenerateRequest(request_id="r", prompt_ids=(5,), sampling=SamplingParams(max_tokens=9))


class ScriptedProcess(EngineProcess):
    """A process that is a socket: it says what it has to say, and is gone."""

    def end(self) -> int | None:
        self.connection.close()
        return -9


@dataclass(frozen=True)
class StuckProcess(ScriptedProcess):
    """One that does not die when it is killed."""

    may_end: threading.Event

    def end(self) -> int | None:
        self.connection.close()
        self.may_end.wait(DEADLINE_S)
        return None


@dataclass
class Launcher:
    """Launches what `lives` says, one after the other; notes the waits between."""

    lives: list[list[ToServer]]
    process: Callable[..., EngineProcess] = ScriptedProcess
    waits: list[float] = field(default_factory=list)
    #: The last of them is over.
    is_spent: asyncio.Event = field(default_factory=asyncio.Event)
    _theirs: list[socket.socket] = field(default_factory=list)

    def launch(self) -> EngineProcess:
        ours, theirs = socket.socketpair()
        self._theirs.append(theirs)
        theirs.sendall(b"".join(map(encode_frame, self.lives.pop(0))))
        theirs.shutdown(socket.SHUT_WR)  # it still takes what comes, as a dying process does
        return self.process(SimpleNamespace(pid=0), ours)

    async def sleep(self, delay_s: float) -> None:
        self.waits.append(delay_s)
        if not self.lives:
            self.is_spent.set()
            await asyncio.Event().wait()

    def close(self) -> None:
        for end in self._theirs:
            end.close()


async def fail(engine: ProcessEngine) -> None:
    """Start an engine and wait until it is given up."""
    engine.start()
    async with asyncio.timeout(DEADLINE_S):
        while engine.status().state is not EngineState.FAILED:
            await turn()


async def spend(engine: ProcessEngine, launcher: Launcher) -> None:
    """Start an engine, and stop it after its last life."""
    engine.start()
    async with asyncio.timeout(DEADLINE_S):
        await launcher.is_spent.wait()
        await engine.stop()


async def turn() -> None:
    """Let the supervisor do what it can do."""
    await asyncio.sleep(0)


def make_engine(launcher: Launcher) -> ProcessEngine:
    return ProcessEngine(
        CONFIG,
        hang_timeout_s=DEADLINE_S,
        launch=launcher.launch,
        backoff=Backoff(lambda: 0.0),
        sleep=launcher.sleep,
    )


def test_the_supervisor_waits_between_restarts() -> None:
    """Deaths while loading and after it count alike, and steps make an engine sound."""
    worked = StepOutput((), EngineStats(num_steps=SOUND_STEPS))
    launcher = Launcher(
        [
            [],
            [Loaded(INFO)],
            [Loaded(INFO)],
            [],
            [Loaded(INFO), worked],
            [Loaded(INFO)],
        ]
    )

    asyncio.run(spend(make_engine(launcher), launcher))

    launcher.close()
    assert [0, 1, 2, 4, 0, 1] == launcher.waits


def test_a_model_that_was_loaded_once_is_tried_again() -> None:
    """What its second load lacks may be back soon, as memory; why it fails is told meanwhile."""
    launcher = Launcher([[Loaded(INFO)], [LoadFailed("no memory")], [Loaded(INFO)]])
    engine = make_engine(launcher)
    errors = []

    async def sleep(delay_s: float) -> None:
        errors.append((engine.status().state, engine.status().error))
        await launcher.sleep(delay_s)

    engine._sleep = sleep
    asyncio.run(spend(engine, launcher))

    launcher.close()
    restarting = EngineState.RESTARTING
    assert [(restarting, None), (restarting, "no memory"), (restarting, None)] == errors


def test_nobody_waits_for_a_process_that_does_not_die() -> None:
    """A request learns at once that its engine is lost, though the process is stuck meanwhile."""
    may_end = threading.Event()
    launcher = Launcher([[Loaded(INFO)]], lambda *parts: StuckProcess(*parts, may_end))

    async def scenario() -> None:
        engine = make_engine(launcher)
        engine.start()
        async with asyncio.timeout(DEADLINE_S):
            while engine.status().state is not EngineState.RESTARTING:
                await turn()
            with pytest.raises(EngineDied):
                await anext(engine.generate(REQUEST))
            assert not may_end.is_set()
            may_end.set()
            await engine.stop()

    asyncio.run(scenario())
    launcher.close()


def test_a_model_that_cannot_be_loaded_is_not_tried_again() -> None:
    """`LoadError` at the first start is final, without a wait."""
    launcher = Launcher([[LoadFailed("no weights")]])

    async def scenario() -> None:
        engine = make_engine(launcher)
        await fail(engine)
        with pytest.raises(LoadError, match="no weights"):
            await engine.ready()

    asyncio.run(scenario())

    launcher.close()
    assert [] == launcher.waits


def test_a_model_that_ends_each_process_is_given_up() -> None:
    """As when memory runs out while it loads; one that was up before is tried again and again."""
    launcher = Launcher([[]] * 3)

    async def scenario() -> None:
        engine = make_engine(launcher)
        await fail(engine)
        with pytest.raises(LoadError, match=r"ended 3 times while it was loading \(exit code -9"):
            await engine.ready()

    asyncio.run(scenario())

    launcher.close()
    assert [0, 1] == launcher.waits


@dataclass
class Lines:
    """A logger that keeps what it is told."""

    infos: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def info(self, event: str, **values: object) -> None:
        self.infos.append((event, values))

    def warning(self, event: str, **_values: object) -> None:
        self.warnings.append(event)

    def error(self, _event: str, **_values: object) -> None:
        """No affair of these tests."""

    debug = error


def test_the_ready_line_says_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Implementation, rounding, type and device in one line; what is unexpected as warnings."""
    lines = Lines()
    monkeypatch.setattr(client, "log", lines)
    monkeypatch.setattr(came_up, "log", lines)
    info = replace(INFO, implementation="torch", quantization="int8", warnings=("slow",))
    launcher = Launcher([[Loaded(info)]])

    asyncio.run(spend(make_engine(launcher), launcher))

    launcher.close()
    expected = {
        "implementation": "torch",
        "quantization": "int8",
        "dtype": "float32",
        "device": "cpu",
    }
    assert [("engine ready", expected)] == lines.infos
    assert ["slow", "engine process died; starting another"] == lines.warnings


def test_an_engine_hangs_by_its_own_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step may take as many heartbeats as seconds are allowed, however late they are read.

    A server that was stopped for an hour, its engine with it, finds nothing wrong.
    """
    lines = Lines()
    monkeypatch.setattr(client, "log", lines)
    sound = [Loaded(INFO), *[Alive()] * DEADLINE_S]
    launcher = Launcher([sound, [*sound, Alive()]])

    asyncio.run(spend(make_engine(launcher), launcher))

    launcher.close()
    died = "engine process died; starting another"
    assert [died, "engine hangs; killing it", died] == lines.warnings


def test_an_engine_that_loads_faster_than_it_beats_does_not_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time without a step begins when it is ready, though no heartbeat came before."""
    lines = Lines()
    monkeypatch.setattr(client, "log", lines)
    launcher = Launcher([[Loaded(INFO), Alive()], [Loaded(INFO), Alive()]])

    asyncio.run(spend(make_engine(launcher), launcher))

    launcher.close()
    assert ["engine process died; starting another"] * 2 == lines.warnings


def step(num_steps: int, *outputs: SequenceOutput) -> StepOutput:
    return StepOutput(outputs, EngineStats(num_steps=num_steps))


#: What an engine says that hangs, while requests beside ours are aborted or refused.
HANGING = [Alive(), step(7)] * 100
#: And one whose steps are long.
BUSY = [message for number in range(100) for message in (Alive(), step(number))]
ANSWER = step(100, SequenceOutput("r", (5,), FinishReason.LENGTH))


async def _for_ever(_wait_s: float) -> None:
    await asyncio.Event().wait()


def _answered(before: list[ToServer], meanwhile: list[ToServer]) -> tuple[int, ...]:
    """The tokens of a request to an engine that says this before it is asked, and then answers."""

    async def scene() -> tuple[int, ...]:
        ours, theirs = socket.socketpair()
        with theirs:
            process = ScriptedProcess(SimpleNamespace(pid=0), ours)  # type: ignore[arg-type]
            engine = ProcessEngine(CONFIG, hang_timeout_s=HANG_S, first=process, sleep=_for_ever)
            engine.start()
            said = [Loaded(INFO), *before, step(8)]
            theirs.sendall(b"".join(map(encode_frame, said)))
            while engine.stats().num_steps != 8:  # noqa: ASYNC110 - the engine has no event for it
                await asyncio.sleep(0)
            answer = asyncio.ensure_future(anext(engine.generate(REQUEST)))
            await asyncio.sleep(0)  # it is under way
            theirs.sendall(b"".join(map(encode_frame, [*meanwhile, ANSWER])))
            try:
                return (await answer).token_ids
            finally:
                await engine.stop()

    return asyncio.run(scene())


def test_a_hang_is_seen_though_others_leave() -> None:
    """What the engine says of them is no step."""
    with pytest.raises(EngineDied):
        _answered([], HANGING)


@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [pytest.param([], BUSY, id="slow"), pytest.param(HANGING, [], id="idle before")],
)
def test_what_goes_on_is_no_hang(before: list[ToServer], meanwhile: list[ToServer]) -> None:
    """An engine may take its time for each step, and has none to take while nobody asks."""
    assert (5,) == _answered(before, meanwhile)
