"""Models by their names on the Hugging Face hub: from its cache on this machine, or downloaded.

huggingface_hub does it all: the cache, `HF_TOKEN`, `HF_ENDPOINT`, `HF_HUB_OFFLINE`. What is added:
only files that are read are fetched, the hub is asked once within a time limit before anything
else, and what goes wrong is said in words. Imported inside functions, since that takes its time.
"""

from __future__ import annotations

from pathlib import Path

from streamwell.core.errors import LoadError
from streamwell.models.gguf_parts import is_first_part, part_names
from streamwell.models.weights import PICKLED

#: What is read of a repository; pickles would not be loaded.
_FILES = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.spm", "*.tiktoken", "*.txt")
#: The same weights again, in other layouts.
_UNREAD = ("*/*.safetensors", "consolidated*.safetensors*")


def download(name: str, revision: str | None = None, *, with_code: bool = False) -> Path:
    """The folder of a model of the hub, `org/name`, or a file of it, `org/name:file.gguf`.

    The hub is asked for what is new, for `HF_HUB_ETAG_TIMEOUT` seconds (10) at most; without an
    answer it is what the cache holds. `revision` is a branch, a tag or a commit. Python files come
    only `with_code`.

    Raises:
        LoadError: there is no such model, or no way to get it; says what to do.
    """
    from huggingface_hub.errors import HFValidationError

    repo_id, _, file = name.partition(":")
    if file and not file.endswith(".gguf"):
        raise LoadError(f"{name!r} names a file that is no GGUF file")
    try:
        reason = _ask(repo_id, file, revision)
    except HFValidationError as error:
        raise LoadError(f"there is no folder {name}, nor can a model be so named") from error
    wanted = part_names(file) if file else [*_FILES, *(["*.py"] if with_code else [])]
    folder, reason = _fetch(repo_id, wanted, revision, reason)
    if folder is None or not (folder / (file or "config.json")).is_file():
        raise LoadError(_what_to_do(repo_id, revision, reason or "nothing was found"))
    return folder / file if file else folder


def _ask(repo_id: str, file: str, revision: str | None) -> str | None:
    """Ask the hub for the model: `None` if it gives it, else why not.

    Raises:
        LoadError: it has the model, but not in a form that can be served.
    """
    import httpx2
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    timeout_s = constants.HF_HUB_ETAG_TIMEOUT
    try:
        info = HfApi().model_info(repo_id, revision=revision, timeout=timeout_s)
    except OfflineModeIsEnabled:
        return "this machine is set offline (HF_HUB_OFFLINE)"
    except HfHubHTTPError as error:
        return _refusal(error)
    except httpx2.TimeoutException:
        return f"{constants.ENDPOINT} gave no answer within {timeout_s} s"
    except (httpx2.HTTPError, OSError) as error:
        return f"{constants.ENDPOINT} cannot be reached ({error})"
    _check_offer(repo_id, file, [sibling.rfilename for sibling in info.siblings or ()])
    return None


def _check_offer(repo_id: str, file: str, offered: list[str]) -> None:
    """Before gigabytes of what cannot be served are fetched."""
    gguf = sorted(name for name in offered if name.endswith(".gguf") and is_first_part(name))
    if file:
        if file not in offered:
            raise LoadError(f"{repo_id} has no {file}; its GGUF files: {_list(gguf)}")
        return
    if any(name.endswith(".safetensors") for name in offered):
        return
    if gguf:
        raise LoadError(
            f"{repo_id} has no safetensors, but GGUF files: name one, as in {repo_id}:{gguf[0]}; "
            f"there are {_list(gguf)}"
        )
    pickles = sorted(name for name in offered if name.endswith(PICKLED))
    hint = (
        f"; {pickles[0]} may be a pickle, which is a program, and is not loaded" if pickles else ""
    )
    raise LoadError(f"{repo_id} has no safetensors{hint}")


def _list(names: list[str]) -> str:
    shown = ", ".join(names[:8]) or "none"
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown


def _fetch(
    repo_id: str, wanted: list[str], revision: str | None, reason: str | None
) -> tuple[Path | None, str | None]:
    """The folder, downloaded if there is no reason against it; or `None`, and the reason."""
    import httpx2
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(
            snapshot_download(
                repo_id,
                revision=revision,
                allow_patterns=wanted,
                ignore_patterns=list(_UNREAD),
                local_files_only=reason is not None,
            )
        )
    except HfHubHTTPError as error:
        return None, reason or _refusal(error)
    except (LocalEntryNotFoundError, httpx2.HTTPError, OSError, ValueError) as error:
        return None, reason or f"the download failed ({type(error).__name__}: {error})"
    return folder, reason


def _refusal(error: Exception) -> str:
    """What the hub has said."""
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, GatedRepoError):
        token = "the one that is set has no access" if get_token() else "none is set"
        return (
            "it is gated: ask for access on its page, and set HF_TOKEN to a token of the account "
            f"that was given it ({token})"
        )
    if isinstance(error, RevisionNotFoundError):
        return f"{constants.ENDPOINT} has no such revision of it"
    if isinstance(error, RepositoryNotFoundError):
        token = "to the token that is set" if get_token() else "to who sends no token (HF_TOKEN)"
        return f"{constants.ENDPOINT} has no model of this name, or does not show it {token}"
    response = getattr(error, "response", None)
    status = "an error" if response is None else f"status {response.status_code}"
    return f"{constants.ENDPOINT} answered with {status}"


def _what_to_do(repo_id: str, revision: str | None, reason: str) -> str:
    from huggingface_hub import constants

    option = f" --revision {revision}" if revision else ""
    return (
        f"the model {repo_id!r}{f' at {revision!r}' if revision else ''} is no local folder, and "
        f"not (or not wholly) in the cache {constants.HF_HUB_CACHE}; {reason}. On a machine that "
        f"can get it, `hf download {repo_id}{option} --local-dir FOLDER` does; bring that folder "
        "here, and give its path"
    )
