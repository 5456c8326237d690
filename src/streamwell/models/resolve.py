"""From the name of a model to a local folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from streamwell.models import brooklet_path

#: Fields of `generation_config.json` that stand in where a request is silent.
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


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
                repo_id, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
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
        config = json.loads((path / "generation_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {name: config[name] for name in _SAMPLING if isinstance(config.get(name), int | float)}
