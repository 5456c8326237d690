"""`streamwell serve`: finds the model and starts the engine process before the long imports."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from dataclasses import replace

from streamwell.core.errors import LoadError, StreamwellError
from streamwell.engine.launch import launch
from streamwell.models.resolve import resolve
from streamwell.settings import Settings


def run(model: str, settings: Settings) -> None:
    """Serve until stopped.

    Raises:
        LoadError: there is no such model.
        StreamwellError: the port is taken.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))  # until the server takes them over
    try:
        path = resolve(model)
    except FileNotFoundError as error:
        raise LoadError(str(error)) from error
    listener = _listen(settings.host, settings.port)
    # both processes have seconds of imports before them: let them do so side by side
    gc.disable()  # collecting during imports finds nothing; `serving` turns it on
    engine = launch() if settings.engine == "transformers" else None
    try:
        from streamwell.cli.serving import serve

        settings = replace(settings, model=model, port=listener.getsockname()[1])
        serve(settings, path, engine, listener)
    finally:
        if engine is not None:
            engine.end()  # it may not have been taken over yet


def _listen(host: str, port: int) -> socket.socket:
    """Take the port before anything else is started: it may be taken already."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StreamwellError(
            f"cannot listen on {host} port {port}: {reason}; choose another with --port"
        ) from error
