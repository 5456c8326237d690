"""`streamwell serve`: finds the model and starts the engine process before the long imports."""

from __future__ import annotations

import gc
from dataclasses import replace

from streamwell.core.errors import LoadError
from streamwell.engine.launch import launch
from streamwell.models.resolve import resolve
from streamwell.settings import Settings


def run(model: str, settings: Settings) -> None:
    """Serve until stopped.

    Raises:
        LoadError: there is no such model.
    """
    try:
        path = resolve(model)
    except FileNotFoundError as error:
        raise LoadError(str(error)) from error
    # both processes have seconds of imports before them: let them do so side by side
    gc.disable()  # collecting during imports finds nothing; `serving` turns it on
    engine = launch() if settings.engine == "transformers" else None
    from streamwell.cli.serving import serve

    serve(replace(settings, model=model), path, engine)
