"""Whether two model folders mean the same by their ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamwell.core.errors import LoadError
from streamwell.models.vocabulary import check_same_vocabulary

WORDS = {"a": 0, "b": 1, "c": 2}


def a_folder(tmp_path: Path, name: str, content: Any = None, file: str = "tokenizer.json") -> Path:  # noqa: ANN401 - JSON
    folder = tmp_path / name
    folder.mkdir()
    if content is not None:
        (folder / file).write_text(json.dumps(content), encoding="utf-8")
    return folder


def tokenizer(vocab: Any, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"model": {"type": "BPE", "vocab": vocab}} | more


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (tokenizer(WORDS), tokenizer(WORDS)),
        (tokenizer(WORDS), tokenizer(dict(reversed(WORDS.items())), normalizer=None)),
        (tokenizer(WORDS), tokenizer(WORDS, added_tokens=[{"id": 3, "content": "<|end|>"}])),
        (tokenizer([["a", -1.0], ["b", -2.0]]), tokenizer([["a", -1.5], ["b", -2.5]])),
    ],
)
def test_same_ordinary_tokens_are_the_same_vocabulary(
    tmp_path: Path, one: object, other: object
) -> None:
    """Whatever the order in the file, scores, and tokens that were added."""
    assert check_same_vocabulary(a_folder(tmp_path, "x", one), a_folder(tmp_path, "y", other))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (tokenizer(WORDS | {"d": 3}), "are different vocabularies"),
        (tokenizer({"a": 0, "b": 2, "c": 1}), "are different vocabularies"),
        (tokenizer([["a", -1.0], ["c", -2.0], ["b", -2.0]]), "are different vocabularies"),
        (tokenizer("abc"), "has no vocabulary"),
        (tokenizer([3]), "has no vocabulary"),
        ({"model": []}, "has no vocabulary"),
        ([], "holds a list where an object is wanted"),
    ],
)
def test_others_are_refused(tmp_path: Path, other: object, message: str) -> None:
    """Also what is no vocabulary at all."""
    folder = a_folder(tmp_path, "x", tokenizer(WORDS))

    with pytest.raises(LoadError, match=message):
        check_same_vocabulary(folder, a_folder(tmp_path, "y", other))


def test_files_of_other_kinds_are_compared_as_they_are(tmp_path: Path) -> None:
    """We do not read what is in them."""
    one, same, other = (
        a_folder(tmp_path, name, content, "vocab.json")
        for name, content in (("x", WORDS), ("y", WORDS), ("z", {}))
    )
    assert check_same_vocabulary(one, same)

    with pytest.raises(LoadError, match="different"):
        check_same_vocabulary(one, other)


def test_a_folder_without_a_vocabulary_says_nothing(tmp_path: Path) -> None:
    """If neither has one, nothing was compared; if one has, they are not the same."""
    none, also_none = a_folder(tmp_path, "x"), a_folder(tmp_path, "y")
    assert not check_same_vocabulary(none, also_none)

    with pytest.raises(LoadError, match="cannot be compared"):
        check_same_vocabulary(none, a_folder(tmp_path, "z", tokenizer(WORDS)))
