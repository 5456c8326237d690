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
from streamwell.models.resolve import named_models, resolve
from streamwell.settings import Settings


def run(models: tuple[str, ...], settings: Settings) -> None:
    """Serve until stopped.

    Raises:
        InvalidRequest: two models have the same name, or settings do not go together.
        LoadError: there is no such model.
        StreamwellError: the port is taken.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))  # until the server takes them over
    named = named_models(models)
    settings = replace(settings, models=tuple(named))
    try:
        folders = {name: resolve(model, settings.revision) for name, model in named.items()}
    except FileNotFoundError as error:
        raise LoadError(str(error)) from error
    try:
        if (draft := settings.speculative_model) is not None:
            settings = replace(settings, speculative_model=str(resolve(draft)))
    except FileNotFoundError as error:
        raise LoadError(f"--speculative-model: {error}") from error
    listener = _listen(settings.host, settings.port)
    if settings.ray:
        from streamwell.cli.ray_serving import serve_on_ray

        port = listener.getsockname()[1]
        listener.close()  # Ray's proxy takes it
        serve_on_ray(replace(settings, port=port), named)
        return
    # both processes have seconds of imports before them: let them do so side by side
    gc.disable()  # collecting during imports finds nothing; `serving` turns it on
    engine = launch() if settings.engine == "transformers" else None
    try:
        from streamwell.cli.serving import serve

        settings = replace(settings, port=listener.getsockname()[1])
        serve(settings, folders, engine, listener)
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
