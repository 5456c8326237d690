"""The serving half of `streamwell serve`: progress, server."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streamwell.cli import compat
from streamwell.cli.banner import greet
from streamwell.core.engine_state import EngineState
from streamwell.engine.launch import EngineProcess
from streamwell.server.front import Front
from streamwell.server.serving import Drain, make_server
from streamwell.settings import Settings

if TYPE_CHECKING:
    from streamwell.service.models import Served
    from streamwell.wiring import Application


def serve(
    settings: Settings,
    folders: Mapping[str, Path],
    engine: EngineProcess | None,
    listener: socket.socket,
) -> None:
    """Serve on a listening socket until stopped; `engine` is a process launched already."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(partial(_build, settings, folders, engine), settings, listener))


def _build(
    settings: Settings, folders: Mapping[str, Path], engine: EngineProcess | None
) -> Application:
    # a second of imports: the page does not wait for them
    from streamwell.telemetry import configure_logging
    from streamwell.wiring import build

    configure_logging(settings.log_level, as_json=settings.log_json)
    if settings.compat is not None:
        compat.warn(os.environ)
    application = build(settings, folders, engine)
    # what is imported stays; and a large body's million objects are no reason to collect
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    gc.enable()
    return application


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is to be had (not on Windows): it takes less CPU per event."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(
    build: Callable[[], Application], settings: Settings, listener: socket.socket
) -> None:
    front = Front()
    drains: list[Drain] = []

    async def drain(drain_s: float) -> None:
        front.close()
        await asyncio.gather(*(of_runs(drain_s) for of_runs in drains))

    server = make_server(
        front, drain=drain, drain_s=settings.drain_s, send_timeout_s=settings.send_timeout_s
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="serve")
    building = asyncio.create_task(asyncio.to_thread(build), name="build")
    try:
        await asyncio.wait((serving, building), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():  # a signal came first
            return
        application = building.result()
        async with application.running() as loading:
            # a server without a model is of no use: end it, with the reason
            loading.add_done_callback(lambda task: server.exit_now() if _failed(task) else None)
            drains.append(application.services.runs.drain)
            front.open(application.asgi)
            greet(settings)
            progress = asyncio.create_task(_show_progress(application.models))
            try:
                await serving
            finally:
                progress.cancel()
                await asyncio.gather(progress, return_exceptions=True)
            if (error := _failed(loading)) is not None:
                raise error
    finally:
        server.exit_now()
        await asyncio.gather(serving, return_exceptions=True)


def _failed(task: asyncio.Task[None]) -> BaseException | None:
    return task.exception() if task.done() and not task.cancelled() else None


async def _show_progress(models: Sequence[Served]) -> None:
    """A progress bar on a terminal for each model, while it loads."""
    if not sys.stderr.isatty():
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        for model in models:
            bar = progress.add_task("starting", total=1.0)
            while not model.is_ready and model.state != EngineState.FAILED:
                status = model.engine.status()
                stage = f"{model.names[0]}: {status.stage or 'starting'}"
                progress.update(bar, completed=status.progress, description=stage)
                await asyncio.sleep(0.1)
