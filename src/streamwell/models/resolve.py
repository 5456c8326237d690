"""From the name of a model to a local folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from streamwell.core.errors import InvalidRequest, LoadError
from streamwell.models import BUILT_IN, built_in_path
from streamwell.models.gguf_folder import folder_of_gguf, only_gguf
from streamwell.models.hub import download
from streamwell.models.nearest import nearest
from streamwell.models.small_files import check_sizes, read_object

#: Fields of `generation_config.json` that stand in where a request is silent.
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_MAX_SAMPLING = 1e6


def resolve(name: str, revision: str | None = None, *, with_code: bool = False) -> Path:
    """The folder of a model: built in, local, or of the hub; a GGUF file gets a folder of its own.

    May take as long as a download; call it in a thread.

    Args:
        name: of a model in the box, a folder, a GGUF file, or `org/name` or `org/name:file.gguf`
            of the hub.
        revision: a branch, tag or commit of the hub's; others have none.
        with_code: fetch the hub's Python files, too, for `--trust-remote-code`.

    Raises:
        LoadError: there is no such model, or no way to get it, or it is a GGUF file that cannot
            be served; the message is for people.
    """
    if not name:
        raise LoadError("the name of the model is empty")
    _require_text(name)  # before anything is looked for
    try:
        path = built_in_path(name) if name in BUILT_IN else Path(name).expanduser()
        is_here = path.exists()
    except (OSError, RuntimeError) as error:  # a folder that is closed to us, or nobody's home
        raise LoadError(f"{name}: {error}") from error
    if is_here:
        if revision is not None:
            raise LoadError(
                f"{name} lies on this machine and has no revisions: leave out --revision"
            )
        return _local(path)
    if path.is_absolute() or name.startswith((".", "~")):
        raise LoadError(f"there is no folder or file {name}{_hint(name)}")
    try:
        folder = download(name, revision, with_code=with_code)
    except LoadError as error:
        raise LoadError(f"{error}{_hint(name)}") from None
    return _local(folder)


def _hint(name: str) -> str:
    names = nearest(name)
    verb = "are" if len(names) > 1 else "is"
    return f"; on this machine {verb} {', '.join(names)}" if names else ""


def named_models(models: tuple[str, ...]) -> dict[str, str]:
    """Models by their names: what stands before the first `=`, else the model as it is given.

    Raises:
        InvalidRequest: a name is empty or given twice.
    """
    named: dict[str, str] = {}
    for model in models:
        name, separator, rest = model.partition("=")
        if not separator or Path(model).exists():
            name = rest = model
        if not name or name in named:
            raise InvalidRequest(f"the name {name!r} of a model is empty or given twice", "model")
        named[name] = rest
    return named


def _local(path: Path) -> Path:
    gguf = only_gguf(path) if path.is_dir() else path
    _require_text(str((gguf or path).absolute()))
    return path if gguf is None else folder_of_gguf(gguf)


def _require_text(name: str) -> None:
    """Names are logged, and kept with runs."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise LoadError(f"the name {name!a} is no UTF-8: rename it") from error


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
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value) and 0 <= value <= _MAX_SAMPLING
