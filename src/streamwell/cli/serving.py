"""The serving half of `streamwell serve`: progress, server."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from streamwell.cli import compat
from streamwell.cli.banner import greet
from streamwell.core.engine_state import EngineState
from streamwell.engine.launch import EngineProcess
from streamwell.server.serving import DrainingServer, make_server
from streamwell.service.models import Served
from streamwell.settings import Settings
from streamwell.telemetry import configure_logging
from streamwell.wiring import Application, build


def serve(
    settings: Settings,
    folders: Mapping[str, Path],
    engine: EngineProcess | None,
    listener: socket.socket,
) -> None:
    """Serve on a listening socket until stopped; `engine` is a process launched already."""
    configure_logging(settings.log_level, as_json=settings.log_json)
    if settings.compat is not None:
        compat.warn(os.environ)
    # what is imported stays; and a large body's million objects are no reason to collect
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    gc.enable()
    application = build(settings, folders, engine)
    server = make_server(
        application.asgi,
        drain=application.services.runs.drain,
        drain_s=settings.drain_s,
        send_timeout_s=settings.send_timeout_s,
    )
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(server, application, settings, listener))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is to be had (not on Windows): it takes less CPU per event."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(
    server: DrainingServer, application: Application, settings: Settings, listener: socket.socket
) -> None:
    async with application.running() as loading:
        # a server without a model is of no use: end it, with the reason
        loading.add_done_callback(lambda task: server.exit_now() if _failed(task) else None)
        greet(settings)
        progress = asyncio.create_task(_show_progress(application.models))
        try:
            await server.serve(sockets=[listener])
        finally:
            progress.cancel()
            await asyncio.gather(progress, return_exceptions=True)
        if (error := _failed(loading)) is not None:
            raise error


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
