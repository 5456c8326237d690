"""What the engine's supervisor makes of what its process says, over a process that is none."""

from __future__ import annotations

import asyncio
import socket
import subprocess

import pytest

from streamwell.core.engine_state import EngineInfo, EngineStats
from streamwell.core.errors import EngineDied
from streamwell.core.types import FinishReason, GenerateRequest, SamplingParams
from streamwell.engine.client import ProcessEngine
from streamwell.engine.connection import HEARTBEAT_S
from streamwell.engine.launch import EngineProcess
from streamwell.engine.messages import (
    Alive,
    EngineConfig,
    Loaded,
    StepOutput,
    ToServer,
    encode_frame,
)
from streamwell.engine.sequence import SequenceOutput

pytestmark = pytest.mark.timeout(30)

INFO = EngineInfo(
    max_model_len=64, vocab_size=8, num_blocks=4, block_size=16, dtype="float32", device="cpu"
)
CONFIG = EngineConfig(
    model_path="",
    device="cpu",
    dtype="float32",
    max_model_len=64,
    max_num_seqs=4,
    max_num_batched_tokens=64,
    kv_cache_bytes=None,
    block_size=16,
    num_threads=1,
)
REQUEST = GenerateRequest(request_id="r", prompt_ids=(5,), sampling=SamplingParams(max_tokens=9))
HANG_S = 5 * HEARTBEAT_S


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

    spawned = subprocess.Popen(["true"])

    async def scene() -> tuple[int, ...]:
        ours, theirs = socket.socketpair()
        with theirs:
            process = EngineProcess(spawned, ours)
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
