"""`streamwell serve`: finds the model and starts the engine process before the long imports."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

from streamwell.core.errors import InvalidRequest, LoadError, StreamwellError
from streamwell.engine.launch import PROGRAMS, launch
from streamwell.models.loader_hook import call_loader
from streamwell.models.resolve import resolve
from streamwell.settings import Settings, default_data_dir


def run(models: tuple[str, ...], settings: Settings) -> None:
    """Serve until stopped.

    Raises:
        InvalidRequest: two models have the same name.
        LoadError: there is no such model, or the function that was to load one failed.
        StreamwellError: the port is taken.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))  # until the server takes them over
    named = _named(models)
    own = () if settings.loader is None else (settings.loader,)
    settings = replace(settings, models=(*own, *named))
    try:
        folders = {name: resolve(model, settings.revision) for name, model in named.items()}
    except FileNotFoundError as error:
        raise LoadError(str(error)) from error
    try:
        if (draft := settings.speculative_model) is not None:
            settings = replace(settings, speculative_model=str(resolve(draft)))
    except FileNotFoundError as error:
        raise LoadError(f"--speculative-model: {error}") from error
    if settings.loader is not None:
        data_dir = settings.data_dir or default_data_dir()
        folders = {settings.loader: call_loader(settings.loader, data_dir / "loaders"), **folders}
    listener = _listen(settings.host, settings.port)
    # both processes have seconds of imports before them: let them do so side by side
    gc.disable()  # collecting during imports finds nothing; `serving` turns it on
    engine = launch(settings.engine) if settings.engine in PROGRAMS else None
    try:
        from streamwell.cli.serving import serve

        settings = replace(settings, port=listener.getsockname()[1])
        serve(settings, folders, engine, listener)
    finally:
        if engine is not None:
            engine.end()  # it may not have been taken over yet


def _named(models: tuple[str, ...]) -> dict[str, str]:
    """Models by their names: what stands before the first `=`, else the model as it is given."""
    named: dict[str, str] = {}
    for model in models:
        name, separator, rest = model.partition("=")
        if not separator or Path(model).exists():
            name = rest = model
        if not name or name in named:
            raise InvalidRequest(f"the name {name!r} of a model is empty or given twice", "model")
        named[name] = rest
    return named


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
