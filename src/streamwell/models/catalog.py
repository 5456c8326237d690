"""What may be loaded while the server runs: models and adapters in one folder of the operator's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from os.path import isfile  # unlike pathlib's, it does not mind a folder that is closed to us
from pathlib import Path

#: Models that are listed, at most; a larger collection is cut, in the order of names.
MAX_MODELS = 1000


def names(models_dir: Path) -> list[str]:
    """Names of the model folders in a folder: `name`, or `owner/name`; sorted."""
    found = islice(_folders(models_dir), MAX_MODELS)
    return sorted(folder.relative_to(models_dir).as_posix() for folder in found)


def find(models_dir: Path, name: str) -> Path | None:
    """The model folder of this name; nothing if there is none.

    A name never leads out of `models_dir`; a symbolic link that its owner put there may.
    """
    parts = name.split("/")
    if len(parts) > 2 or any(not _is_plain(part) for part in parts):
        return None
    folder = models_dir.joinpath(*parts)
    return folder if _is_model(folder) else None


def _is_plain(part: str) -> bool:
    return bool(part) and not part.startswith(".") and part.isprintable() and "\\" not in part


def _folders(models_dir: Path) -> Iterator[Path]:
    for folder in _subfolders(models_dir):
        yield from [folder] if _is_model(folder) else filter(_is_model, _subfolders(folder))


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if _is_plain(p.name) and p.is_dir())
    except OSError:
        return []


def _is_model(folder: Path) -> bool:
    if not isfile(folder / "config.json"):
        return is_adapter(folder)
    return any(folder.glob("*.safetensors")) or not any(folder.glob("*.gguf"))


def is_adapter(folder: Path) -> bool:
    """It holds what is added to a model, and no model."""
    return isfile(folder / "adapter_config.json")


def adapter_size(folder: Path) -> int:
    """Bytes of an adapter's weights on disk."""
    file = folder / "adapter_model.safetensors"
    return file.stat().st_size if file.is_file() else 0
