"""`streamwell serve`: finds the model and starts the engine process before the long imports."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from streamwell.backends.programs import PROGRAMS
from streamwell.core.errors import LoadError, StreamwellError
from streamwell.engine.launch import launch
from streamwell.models.loader_hook import call_loader
from streamwell.models.resolve import named_models, resolve
from streamwell.settings import Settings, default_data_dir

#: How far from a taken port the next free one is looked for.
_NEAR_PORTS = 100
#: As many as macOS gives to a process.
_MANY_FILES = 10_240


def run(models: tuple[str, ...], settings: Settings) -> None:
    """Serve until stopped.

    Raises:
        InvalidRequest: two models have the same name, or settings do not go together.
        LoadError: there is no such model, or the function that was to load one failed.
        StreamwellError: the port is taken.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))  # until the server takes them over
    named = named_models(models)
    own = () if settings.loader is None else (settings.loader,)
    settings = replace(settings, models=(*own, *named))
    folders = _folders(named, settings)
    if (draft := settings.speculative_model) is not None:
        folder = _draft_folder(draft)
        if not settings.ray:  # whose machines look for it themselves
            settings = replace(settings, speculative_model=str(folder))
    listener = _listen(settings.host, settings.port)
    settings = replace(settings, port=listener.getsockname()[1])
    if settings.ray:
        from streamwell.cli.ray_serving import serve_on_ray

        listener.close()  # Ray's proxy takes it
        serve_on_ray(settings, named)
    else:
        _serve_here(settings, folders, listener)


def _folders(named: Mapping[str, str], settings: Settings) -> dict[str, Path]:
    """The folders of the models by their names, that of `--loader` first."""
    folders = {
        name: resolve(model, settings.revision, with_code=settings.trust_remote_code)
        for name, model in named.items()
    }
    if settings.loader is None:
        return folders
    data_dir = settings.data_dir or default_data_dir()
    return {settings.loader: call_loader(settings.loader, data_dir / "loaders"), **folders}


def _draft_folder(draft: str) -> Path:
    try:
        return resolve(draft)
    except LoadError as error:
        raise LoadError(f"--speculative-model: {error}") from error


def raise_file_limit() -> None:
    """Let there be a socket for every reader, as far as the system allows.

    The usual limit of 1024 descriptors is for the sake of programs that call `select`. Where any
    may be asked for, the system may still refuse to have none.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):  # not POSIX, or not to be had
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _MANY_FILES if hard == resource.RLIM_INFINITY else hard
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _serve_here(settings: Settings, folders: Mapping[str, Path], listener: socket.socket) -> None:
    raise_file_limit()
    # both processes have seconds of imports before them: let them do so side by side
    gc.disable()  # collecting during imports finds nothing; `serving` turns it on
    program = PROGRAMS.get(settings.engine)
    engine = launch(program) if program else None
    try:
        from streamwell.cli.serving import serve

        serve(settings, folders, engine, listener)
    finally:
        if engine is not None:
            engine.end()  # it may not have been taken over yet


def _listen(host: str, port: int) -> socket.socket:
    """Take the port before anything else is started: it may be taken already."""
    try:
        return _listener(host, port)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        free = _next_free(host, port) if error.errno == errno.EADDRINUSE else None
        hint = f"--port {free} is free" if free else "choose another with --port"
        raise StreamwellError(f"cannot listen on {host} port {port}: {reason}; {hint}") from error


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)


def _next_free(host: str, port: int) -> int | None:
    """The first port after a taken one that can be had now, if it is near."""
    for candidate in range(port + 1, min(port + _NEAR_PORTS, 65535) + 1):
        with contextlib.suppress(OSError), _listener(host, candidate):
            return candidate
    return None
