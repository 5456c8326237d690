"""The engine process: `python -m streamwell.engine.process FD`, started by `client`.

The main thread loads, steps and sends; `connection` has the other threads.
"""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import signal
import sys
import time
from typing import TYPE_CHECKING

from streamwell.core.errors import LoadError
from streamwell.engine.connection import HEARTBEAT_S, Connection
from streamwell.engine.messages import (
    KERNELS,
    Commands,
    EngineConfig,
    Loaded,
    LoadFailed,
    Loading,
    StepOutput,
    usual_tokens_per_step,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamwell.engine.loader import LoadedModel
    from streamwell.engine.loop import EngineLoop


def run(connection: Connection) -> None:
    """Load what the first message says, then step for ever."""
    connection.send(Loading("importing", 0.0))
    gc.disable()  # collecting during imports finds nothing
    # torch takes seconds to import: the server hears of it first, and sends what to load meanwhile
    from streamwell.engine.loader import load
    from streamwell.engine.native.library import pin_threads

    config = connection.inbox.get()
    if not isinstance(config, EngineConfig):
        raise TypeError("the first message must be the configuration")
    if not config.trust_remote_code:
        os.environ["HF_HUB_OFFLINE"] = "1"  # the folder is all there is: nothing is ever fetched
    try:
        model = load(config, lambda stage, progress: connection.send(Loading(stage, progress)))
    except LoadError as error:
        connection.send(LoadFailed(str(error)))
        return
    except Exception as error:  # a new process would fail alike: say so instead of trying for ever
        connection.send(LoadFailed(f"{type(error).__name__}: {error}"))
        raise
    if model.info.implementation.startswith("native/"):
        pin_threads()
    loop = _make_loop(config, model)
    gc.freeze()
    gc.enable()
    connection.send(Loaded(model.info))
    while True:
        has_idle_work = _use_idle_time(connection, loop, model.idle_work)
        _take_commands(connection, loop, waits=not (loop.has_work or has_idle_work))
        outputs = loop.step()
        connection.send(StepOutput(tuple(outputs), loop.stats()))


def _make_loop(config: EngineConfig, model: LoadedModel) -> EngineLoop:
    from streamwell.engine.block_pool import BlockPool
    from streamwell.engine.draft_cost import DraftCost
    from streamwell.engine.drafter import NgramDrafter
    from streamwell.engine.loop import EngineLoop
    from streamwell.engine.pace import Pace
    from streamwell.engine.scheduler import Scheduler
    from streamwell.engine.trace import StepTrace

    num_tokens = config.tokens_per_step(usual_tokens_per_step(model.info))
    pool = BlockPool(model.info.num_blocks, model.info.block_size)
    scheduler = Scheduler(
        pool,
        max_num_seqs=model.max_num_seqs,
        max_num_batched_tokens=num_tokens,
        max_model_len=model.info.max_model_len,
        eos_token_ids=model.eos_token_ids,
        max_input_len=model.info.max_input_len or 0,
        enable_prefix_caching=config.enable_prefix_caching and not model.keeps_states,
        num_speculative_tokens=config.num_speculative_tokens,
    )
    pace = Pace(
        config.step_stretch,
        short_step_s=config.short_step_s,
        max_num_batched_tokens=num_tokens,
        # with fewer, a step takes what it takes to launch its kernels one by one
        least_told=num_tokens // 32 if model.info.implementation == KERNELS else 0,
    )
    drafter = model.drafter or (NgramDrafter() if config.speculative_ngram else None)
    start_ids, adapters = model.info.start_ids, model.adapters
    cost = DraftCost() if drafter else None
    file = None if config.trace_path is None else open(config.trace_path, "w", 1, "utf-8")  # noqa: SIM115 - open as long as the process
    trace = None if file is None else StepTrace(file)
    return EngineLoop(
        scheduler, model.runner, pool, pace, start_ids, drafter, adapters, cost, trace
    )


def _use_idle_time(connection: Connection, loop: EngineLoop, work: Iterator[None]) -> bool:
    """Go on with what makes later steps faster, a little at a time.

    Until there is a message, or it is time to say that the engine lives. Returns whether some may
    be left.
    """
    end = time.monotonic() + HEARTBEAT_S
    while not loop.has_work and connection.inbox.empty() and time.monotonic() < end:
        try:
            next(work)
        except StopIteration:
            return False
    return True


def _take_commands(connection: Connection, loop: EngineLoop, *, waits: bool) -> None:
    """Take all that has come; wait for some if there is nothing else to do."""
    try:
        message = connection.inbox.get(block=waits, timeout=HEARTBEAT_S)
        while True:
            if not isinstance(message, Commands):
                raise TypeError(f"unexpected message {type(message).__name__}")
            for command in message.commands:
                if (answer := loop.handle(command)) is not None:
                    connection.send(answer)
            message = connection.inbox.get_nowait()
    except queue.Empty:
        return


def main() -> None:
    """Entry point of the process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # often sent to the whole group; they are the server's, which drains with our help first
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(ConnectionError):  # the server is gone
        run(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
