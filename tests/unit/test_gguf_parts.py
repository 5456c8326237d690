"""GGUF files in several parts: which belong together, and what is wrong with those that do not."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from gguf_bytes import LLAMA, Tensor, Value, gguf

from streamwell.core.errors import LoadError
from streamwell.models import cache_dir
from streamwell.models.gguf_folder import check_unchanged, given
from streamwell.models.gguf_parts import is_first_part, part_names
from streamwell.models.inspection import inspect_model
from streamwell.models.nearest import nearest
from streamwell.models.outline import size_on_disk
from streamwell.models.resolve import resolve
from streamwell.models.weights import is_gguf, read_headers

MODEL: dict[str, Value] = {**LLAMA, "tokenizer.ggml.tokens": ["a", "b", "c"]}
COUNT = 3
FACTORS = (1.0, 8.0)
Change = Callable[..., None]


def name_of(number: int, count: int = COUNT) -> str:
    return f"m-{number:05}-of-{count:05}.gguf"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model in three parts, the first without tensors."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "models"
    folder.mkdir()
    for number in range(1, COUNT + 1):
        write_part(folder, number)
    return folder


def write_part(folder: Path, number: int, **changes: int) -> None:
    """What `gguf-split` writes, but for the changes to `no`, `count` and `tensors.count`."""
    split = {"no": number - 1, "count": COUNT, "tensors.count": 2} | {
        key.replace("__", "."): value for key, value in changes.items()
    }
    metadata: Mapping[str, Value] = (MODEL if number == 1 else {}) | {
        f"split.{key}": value for key, value in split.items()
    }
    tensors, data = {
        1: ([], b""),
        2: ([Tensor("rope_freqs.weight", (2,))], struct.pack("<2f", *FACTORS)),
        3: ([Tensor("token_embd.weight", (8, 3))], bytes(96)),
    }[number]
    (folder / name_of(number)).write_bytes(gguf(metadata, tensors, data))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_of_them_stands_for_all(folder: Path, number: int) -> None:
    """So does the folder that they are in, which has no other."""
    made = resolve(str(folder / name_of(number)))

    assert made == resolve(str(folder))
    assert is_gguf(made)
    assert folder / name_of(1) == given(made)
    assert {"rope_freqs.weight", "token_embd.weight"} == set(read_headers(made))
    assert size_on_disk(made) == sum(file.stat().st_size for file in folder.iterdir())
    inspect_model(made)


def test_a_small_tensor_for_the_config_is_read_from_its_part(folder: Path) -> None:
    """It lies where its own file says."""
    config = json.loads((resolve(str(folder)) / "config.json").read_text())

    assert list(FACTORS) == config["rope_scaling"]["long_factor"]


def test_a_part_that_changes_is_noticed(folder: Path) -> None:
    """As a file in one part is."""
    made = resolve(str(folder))
    check_unchanged(made)

    file = folder / name_of(3)
    file.write_bytes(
        gguf(
            {"split.no": 2, "split.count": 3, "new": 1},
            [Tensor("token_embd.weight", (8, 3))],
            bytes(96),
        )
    )

    with pytest.raises(LoadError, match=r"m-00001-of-00003.gguf has changed"):
        check_unchanged(made)


def test_parts_are_one_model_beside_others(folder: Path) -> None:
    """In what a folder with several is refused with, and in what is like a name."""
    (folder / "other.gguf").write_bytes(gguf(MODEL))

    with pytest.raises(
        LoadError, match=r"2 GGUF files; give the path of one: m-00001-of-00003.gguf, o"
    ):
        resolve(str(folder))
    near = nearest(str(folder / "m-00002-of-00004.gguf"))
    assert {str(folder / name) for name in (name_of(1), "other.gguf")} == set(near)


@pytest.mark.parametrize(
    ("number", "changes", "says"),
    [
        (2, {"no": 2}, "00002-of-00003.gguf does not say of itself that it is part 2 of 3"),
        (3, {"count": 4}, "00003-of-00003.gguf does not say of itself that it is part 3 of 3"),
        (1, {"count": 4}, "is one of 4 parts: it must be called so"),
        (1, {"tensors__count": 5}, "promises 5 tensors in 3 parts, which have 2"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    folder: Path, number: int, changes: dict[str, int], says: str
) -> None:
    """With the file that is to blame; nothing is left in the cache."""
    write_part(folder, number, **changes)

    with pytest.raises(LoadError, match=says):
        resolve(str(folder))
    assert not cache_dir("gguf").exists()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_part_that_is_missing_is_named(folder: Path, number: int) -> None:
    """Also the first, of which the others know nothing but the name."""
    (folder / name_of(number)).unlink()

    for path in (folder, folder / name_of(number % COUNT + 1)):
        with pytest.raises(LoadError, match=rf"{name_of(number)} is missing"):
            resolve(str(path))


def test_a_tensor_in_two_parts_is_refused(folder: Path) -> None:
    """Which of them counts would be a guess."""
    (folder / name_of(2)).write_bytes(
        gguf({"split.no": 1, "split.count": 3}, [Tensor("token_embd.weight", (8, 3))], bytes(96))
    )

    with pytest.raises(
        LoadError, match=r"00003-of-00003.gguf has the tensor 'token_embd.weight', w"
    ):
        resolve(str(folder))


def test_a_part_under_another_name_is_refused(folder: Path) -> None:
    """The others could not be found."""
    (folder / name_of(1)).rename(folder / "renamed.gguf")

    with pytest.raises(LoadError, match=r"renamed.gguf is one of 3 parts: it must be called so"):
        resolve(str(folder / "renamed.gguf"))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("a.gguf", 1),
        ("a-00001-of-00001.gguf", 1),
        ("a-00002-of-00009.gguf", 9),
        ("a-00000-of-00009.gguf", 1),
        ("a-00010-of-00009.gguf", 1),
        ("a-00001-of-99999.gguf", 1),
        ("a-1-of-3.gguf", 1),
        ("a-00001-of-00003.safetensors", 1),
    ],
)
def test_names_of_parts(name: str, count: int) -> None:
    """Five digits each, within the number of parts; what is called otherwise stands alone."""
    names = part_names(name)

    assert count == len(set(names))
    assert name in names
    assert [names[0]] == [name for name in names if is_first_part(name)]
