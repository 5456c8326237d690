"""Names of models on this machine that are like one that was not found."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from itertools import islice
from os.path import isfile  # unlike pathlib's, it does not mind a folder that is closed to us
from pathlib import Path

from streamwell.models import BUILT_IN
from streamwell.models.gguf_parts import is_first_part

_MAX_NAMES = 3
#: Entries of a folder that are looked at.
_MAX_ENTRIES = 1000


def nearest(name: str) -> list[str]:
    """The names that are most like it, at most three: in the box, in the hub's cache, or folders.

    Folders are those beside the one that was named, and those of the working directory.
    """
    by_word = {known.lower(): known for known in (*_in_cache(), *_folders(name), *BUILT_IN)}
    found = difflib.get_close_matches(name.lower(), by_word, _MAX_NAMES, 0.6)
    # of `qwen3-0.6b`, `Qwen/Qwen3-0.6B` is the name, however long its owner's
    last = name.lower().rsplit("/", 1)[-1]
    lasts = {word: word.rsplit("/", 1)[-1] for word in by_word}
    close = set(difflib.get_close_matches(last, lasts.values(), _MAX_NAMES, 0.75))
    found += [word for word in lasts if lasts[word] in close and word not in found]
    return [by_word[word] for word in found[:_MAX_NAMES]]


def _in_cache() -> Iterator[str]:
    """Models of the hub's cache, `org/name`."""
    from huggingface_hub import constants

    for folder in _entries(Path(constants.HF_HUB_CACHE)):
        if folder.name.startswith("models--"):
            yield folder.name.removeprefix("models--").replace("--", "/")


def _folders(name: str) -> Iterator[str]:
    """Model folders and GGUF files, as they would be given."""
    path = Path(name).expanduser()
    for parent in {path.parent, Path()}:
        for entry in _entries(parent):
            if _is_model(entry):
                yield f"./{entry}" if parent == Path() else str(entry)


def _is_model(entry: Path) -> bool:
    if entry.suffix == ".gguf":
        return is_first_part(entry.name)
    return isfile(entry / "config.json")


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(islice(folder.iterdir(), _MAX_ENTRIES))
    except OSError:
        return []
