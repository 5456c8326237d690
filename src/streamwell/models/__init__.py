"""Where folders lie: those of the models in the box, and what is kept of other models."""

import os
from importlib.resources import files
from pathlib import Path

#: Names of the models in the box, and their folders beside this file; all are served by default.
BUILT_IN = {"brooklet": "brooklet", "brooklet-t5": "brooklet_t5"}

#: The adapters in the box.
BUILT_IN_ADAPTERS = {"brooklet-sailor": "brooklet_sailor"}


def built_in_path(name: str) -> Path:
    """The folder of a model or an adapter in the box, in the Hugging Face layout.

    Raises:
        KeyError: there is none of this name.
    """
    # Transformers needs a real folder, which every wheel installation provides.
    return Path(str(files(__name__) / (BUILT_IN | BUILT_IN_ADAPTERS)[name]))


def cache_dir(part: str) -> Path:
    """Where a part of what can be made again is kept, in the platform's place for that."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "streamwell" / part


def brooklet_path() -> Path:
    """The folder of the default model."""
    return built_in_path("brooklet")
