"""The process of a vLLM engine: `python -m streamwell.backends.vllm.process FD`.

It speaks the protocol of our own engine process, so the same supervisor watches it. vLLM starts
processes of its own below it; they are of one group, and when one of them dies all do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import traceback
from importlib.util import find_spec
from multiprocessing import resource_tracker
from pathlib import Path

from streamwell.backends.vllm.arguments import environment
from streamwell.backends.vllm.host import Host
from streamwell.core.errors import LoadError
from streamwell.engine.connection import HEARTBEAT_S, Connection
from streamwell.engine.messages import Commands, EngineConfig, Loaded, LoadFailed, Loading
from streamwell.models.inspection import inspect_model


def _end_group() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


async def run(connection: Connection) -> None:
    """Serve; ends the process and its group, not only itself: a thread may wait for commands."""
    try:
        with contextlib.suppress(ConnectionError):  # the server is gone
            await _run(connection)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        _end_group()


async def _run(connection: Connection) -> None:
    """Load what the first message says, then serve until the engine dies."""
    connection.send(Loading("waiting", 0.0))
    config = await asyncio.to_thread(connection.inbox.get)
    if not isinstance(config, EngineConfig):
        raise TypeError("the first message must be the configuration")
    os.environ.update({k: v for k, v in environment(config).items() if k not in os.environ})
    try:
        _check(config)
        connection.send(Loading("importing vLLM", 0.1))
        from streamwell.backends.vllm.engine import load

        connection.send(Loading("starting vLLM", 0.3))
        engine = load(config)
        await engine.try_out()
    except LoadError as error:
        connection.send(LoadFailed(str(error)))
        return
    except Exception as error:  # a new process would fail alike: say so instead of trying for ever
        connection.send(LoadFailed(f"{type(error).__name__}: {error}"))
        raise
    connection.send(Loaded(engine.info))
    await _serve(connection, Host(engine, connection.send))


def _check(config: EngineConfig) -> None:
    """Raises `LoadError` before the seconds that an import of vLLM takes."""
    if find_spec("vllm") is None:
        raise LoadError("vLLM is not installed: pip install 'streamwell[vllm]'")
    inspect_model(Path(config.model_path), trust_remote_code=config.trust_remote_code)


async def _serve(connection: Connection, host: Host) -> None:
    async def take_commands() -> None:
        while True:
            message = await asyncio.to_thread(connection.inbox.get)
            if not isinstance(message, Commands):
                raise TypeError(f"unexpected message {type(message).__name__}")
            for command in message.commands:
                host.handle(command)

    async def turn() -> None:
        while True:
            host.turn()
            await asyncio.sleep(HEARTBEAT_S)

    tasks = {asyncio.create_task(each) for each in (take_commands(), turn(), host.died.wait())}
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


def main() -> None:
    """Entry point of the process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # often sent to the whole group; they are the server's, which drains with our help first
        signal.signal(number, signal.SIG_IGN)
    # outside of the group that is killed: it removes what the killed ones leave in shared memory
    resource_tracker.ensure_running()
    os.setsid()
    asyncio.run(run(Connection(int(sys.argv[1]), end=_end_group)))


if __name__ == "__main__":
    main()
