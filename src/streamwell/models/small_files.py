"""The small files of a model folder: how large each may be, and how they are read.

A folder may come from anybody. What is read here never takes more memory than its file deserves,
never waits (for a pipe, say), and is what its name says, or is refused.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from streamwell.core.errors import LoadError

_MIB = 1 << 20
#: What we or Transformers may read whole, and the most MiB of it; the first that fits counts. The
#: largest tokenizers of real models have 35 MiB, the largest indexes 10.
_MAX_MIB = {
    "tokenizer_config.json": 16,
    "special_tokens_map.json": 16,
    "added_tokens.json": 16,
    "tokenizer.json": 64,
    "vocab.json": 64,
    "vocab.txt": 64,
    "merges.txt": 64,
    "tekken.json": 64,
    "*.model": 64,
    "*.spm": 64,
    "*.tiktoken": 64,
    "*.safetensors.index.json": 64,
    "*config.json": 1,
    "chat_template*": 1,
    "additional_chat_templates/*.jinja": 1,
}


def check_sizes(path: Path) -> None:
    """Look at every file of a folder that may be read whole.

    Raises:
        LoadError: one is too large, or is no regular file.
    """
    for file, max_mib in _readable(path):
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise LoadError(f"{file} is not a regular file")
        if status.st_size > max_mib * _MIB:
            raise LoadError(f"{file} is too large: {status.st_size} bytes, over {max_mib} MiB")


def _readable(path: Path) -> Iterator[tuple[Path, int]]:
    for file in (*path.iterdir(), *path.glob("additional_chat_templates/*")):
        name = file.relative_to(path).as_posix()
        fitting = (limit for pattern, limit in _MAX_MIB.items() if fnmatchcase(name, pattern))
        if (max_mib := next(fitting, None)) is not None and file.exists():
            yield file, max_mib


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file whose size has been checked.

    Raises:
        LoadError: there is no such file, or no such object in it.
    """
    try:
        content = json.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise LoadError(f"{path.parent} has no readable {path.name}: {error.strerror}") from error
    except RecursionError as error:
        raise LoadError(f"{path} is nested too deeply") from error
    except ValueError as error:
        raise LoadError(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise LoadError(f"{path} holds {_kind(content)} where an object is wanted")
    return content


def read_if_there(path: Path) -> dict[str, Any]:
    """The same of a file that a folder need not have; empty if it is not there."""
    return read_object(path) if path.exists() else {}


def _kind(content: object) -> str:
    kinds = {"list": "a list", "str": "a text", "bool": "a truth value", "NoneType": "nothing"}
    return kinds.get(type(content).__name__, "a number")
