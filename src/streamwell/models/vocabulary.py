"""Whether the ids of two model folders stand for the same texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamwell.core.errors import LoadError
from streamwell.models.small_files import read_object

#: Files that say what ids stand for; of several in a folder the first counts.
_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "tekken.json", "vocab.json")


def check_same_vocabulary(path: Path, other: Path) -> bool:
    """Compare the ordinary tokens of two folders whose files have been inspected.

    Added tokens may differ: members of one family often name the ones that they do not use in ways
    of their own.

    Returns:
        Whether the folders say what their ids stand for; false if neither does.

    Raises:
        LoadError: they say different things, or one of them says nothing.
    """
    file, other_file = _vocabulary_file(path), _vocabulary_file(other)
    if file is None and other_file is None:
        return False
    if file is None or other_file is None or file.name != other_file.name:
        raise LoadError(f"the vocabularies in {path} and {other} cannot be compared")
    if file.read_bytes() == other_file.read_bytes():
        return True
    is_same = file.name == "tokenizer.json" and _tokens(file) == _tokens(other_file)
    if not is_same:
        raise LoadError(f"{file} and {other_file} are different vocabularies")
    return True


def _vocabulary_file(path: Path) -> Path | None:
    return next((path / name for name in _FILES if (path / name).is_file()), None)


def _tokens(file: Path) -> dict[str, Any]:
    """The ids of the ordinary tokens in a `tokenizer.json`, by what the tokenizer calls them."""
    model = read_object(file).get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, dict):
        return vocab
    if isinstance(vocab, list) and all(isinstance(entry, list) and entry for entry in vocab):
        return {str(entry[0]): token_id for token_id, entry in enumerate(vocab)}
    raise LoadError(f"{file} has no vocabulary")
