"""From the name of a model to a local folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from streamwell.core.errors import LoadError
from streamwell.models import brooklet_path
from streamwell.models.small_files import check_sizes, read_object

#: Fields of `generation_config.json` that stand in where a request is silent.
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_MAX_SAMPLING = 1e6


def resolve(name: str) -> Path:
    """The folder of a model: the built-in one, a local folder, or a download from the hub.

    May take as long as a download; call it in a thread.

    Raises:
        FileNotFoundError: there is no such model, or no way to get it.
    """
    if name == "brooklet":
        return brooklet_path()
    if not name:
        raise FileNotFoundError("the name of the model is empty")
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_absolute() or name.startswith((".", "~")):
        raise FileNotFoundError(f"there is no folder {name}")
    return _download(name)


def _download(repo_id: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(
                repo_id,
                allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.model", "*.spm", "*.txt"],
            )
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise FileNotFoundError(
            f"the model {repo_id!r} is no local folder and cannot be downloaded: offline, gated "
            f"(set HF_TOKEN), or misspelt? ({type(error).__name__})"
        ) from error


def default_sampling(path: Path) -> Mapping[str, float]:
    """What the model's authors recommend for sampling; empty when they do not say."""
    try:
        check_sizes(path)
        config = read_object(path / "generation_config.json")
    except (OSError, LoadError):  # if the file is damaged, the engine says so
        return {}
    return {name: config[name] for name in _SAMPLING if _is_usable(config.get(name))}


def _is_usable(value: object) -> bool:
    """Beyond these no setting has a meaning, and some cannot be computed with."""
    return isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= _MAX_SAMPLING
