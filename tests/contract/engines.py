"""The engines that sign the contract, and what tests of them share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, TypeVar

import psutil

from streamwell.backends.programs import PROGRAMS
from streamwell.backends.scripted import Faults, ScriptedEngine
from streamwell.core.errors import EngineError
from streamwell.core.ports import Engine
from streamwell.core.types import FinishReason, GenerateRequest, SamplingParams, TokenDelta
from streamwell.engine.client import ProcessEngine
from streamwell.engine.launch import EngineProcess, launch
from streamwell.engine.messages import EngineConfig

T = TypeVar("T")

#: A fast engine must not come to the end of a context while a test looks at it.
VOCAB_SIZE, MAX_MODEL_LEN, MAX_NUM_SEQS = 64, 16384, 4
#: More than any test waits for, even when the machine is busy.
DEADLINE_S = 60.0
#: Engines of processes: vLLM is in an environment of its own, that of `make test-vllm`.
PROCESS_ENGINES = ("process", "vllm") if find_spec("vllm") else ("process",)
#: The smallest that vLLM computes on CPUs.
VLLM_HEAD_DIM = 32


class Run(Protocol):
    """Runs a coroutine to its end on the module's one event loop."""

    def __call__(self, coroutine: Coroutine[Any, Any, T], /) -> T: ...


@dataclass(frozen=True, slots=True)
class Rig:
    """A way to make engines, and the event loop that they live on."""

    run: Run
    make: Callable[[], Engine]
    #: An engine whose model cannot be loaded.
    make_broken: Callable[[], Engine]
    #: Its model, if it has one.
    folder: Path | None = None


async def eventually(is_true: Callable[[], bool]) -> None:
    """Wait until a condition holds; the only place that polls."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.005)


def scripted_engine(**changes: Any) -> ScriptedEngine:  # noqa: ANN401
    """Tokens are a hash of prompt, seed and index, and never the end of sequence."""

    def script(prompt_ids: Sequence[int], seed: int, index: int) -> int:
        return 3 + hash((tuple(prompt_ids), seed, index)) % (VOCAB_SIZE - 3)

    limits = {"vocab_size": VOCAB_SIZE, "max_model_len": MAX_MODEL_LEN}
    return ScriptedEngine(
        script, **{**limits, "max_num_seqs": MAX_NUM_SEQS, "step_s": 0.001, **changes}
    )


def broken_scripted_engine() -> ScriptedEngine:
    return scripted_engine(faults=Faults(load_error="no weights"))


def process_engine(
    folder: Path,
    *,
    hang_timeout_s: float = 60.0,
    first: EngineProcess | None = None,
    enable_lora: bool = False,
) -> ProcessEngine:
    config = EngineConfig(
        model_path=str(folder),
        device="cpu",
        dtype="float32",
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=64,
        kv_cache_bytes=None,
        block_size=16,
        num_threads=1,
        enable_lora=enable_lora,
    )
    return ProcessEngine(config, hang_timeout_s=hang_timeout_s, first=first)


def vllm_engine(folder: Path) -> ProcessEngine:
    """Of a model with heads of `VLLM_HEAD_DIM`."""
    config = EngineConfig(
        model_path=str(folder),
        device="auto",
        dtype="float32",
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=64,
        kv_cache_bytes=64 << 20,
        block_size=16,
        num_threads=1,
    )
    return ProcessEngine(config, hang_timeout_s=60.0, launch=partial(launch, PROGRAMS["vllm"]))


def engine_children() -> list[psutil.Process]:
    """The engine processes that this test process has started and that still run."""
    found = []
    for child in psutil.Process().children():
        try:
            if "streamwell.engine.process" in child.cmdline():
                found.append(child)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found


def a_request(
    name: str, max_tokens: int = 5, prompt_ids: tuple[int, ...] = (5, 6, 7), **params: object
) -> GenerateRequest:
    """A request that runs to `max_tokens` unless something stops it."""
    sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True, **params)  # type: ignore[arg-type]
    return GenerateRequest(request_id=name, prompt_ids=prompt_ids, sampling=sampling)


def an_endless_request(name: str) -> GenerateRequest:
    """One that is certain to be live still when the test is done with it."""
    return a_request(name, max_tokens=MAX_MODEL_LEN)


@dataclass(slots=True)
class Answer:
    """All that a request brought."""

    deltas: list[TokenDelta] = field(default_factory=list)
    error: EngineError | None = None

    @property
    def token_ids(self) -> list[int]:
        return [token for delta in self.deltas for token in delta.token_ids]

    @property
    def reasons(self) -> list[FinishReason]:
        return [d.finish_reason for d in self.deltas if d.finish_reason is not None]


async def ask(
    engine: Engine, request: GenerateRequest, *, first: asyncio.Event | None = None
) -> Answer:
    """Consume a request to its end; `first` is set when its first tokens have come."""
    answer = Answer()
    try:
        async with aclosing(engine.generate(request)) as deltas:
            async for delta in deltas:
                answer.deltas.append(delta)
                if first is not None:
                    first.set()
    except EngineError as error:
        answer.error = error
    return answer


async def ask_until_live(engine: Engine, request: GenerateRequest) -> asyncio.Task[Answer]:
    """Start to consume a request; returns once its first tokens have come."""
    first = asyncio.Event()
    task = asyncio.create_task(ask(engine, request, first=first))
    waiting = asyncio.create_task(first.wait())
    done, _ = await asyncio.wait({task, waiting}, return_when="FIRST_COMPLETED")
    waiting.cancel()
    assert task not in done, task.result()
    return task
