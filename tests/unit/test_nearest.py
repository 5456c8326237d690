"""A model that is not found: names on this machine that are like it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from streamwell.core.errors import LoadError
from streamwell.models.catalog import names
from streamwell.models.nearest import nearest
from streamwell.models.resolve import resolve


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with two models and a cache of the hub with another; nobody is asked."""
    from huggingface_hub import constants

    for folder in ("models/my-llama", "tiny-t5"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "config.json").touch()
    (tmp_path / "models" / "notes").mkdir()
    (tmp_path / "cache" / "models--Qwen--Qwen3-0.6B").mkdir(parents=True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_that_is_closed_to_us_is_no_model(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are found beside it; who names it is told, as who names nobody's home."""

    (here / "lost+found").mkdir()
    look = os.stat

    def look_unless_closed(path: Any, **how: Any) -> os.stat_result:  # noqa: ANN401
        if "lost+found/" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return look(path, **how)

    monkeypatch.setattr(os, "stat", look_unless_closed)

    assert ["./tiny-t5"] == nearest("./tiny-t6")
    assert ["tiny-t5"] == [name for name in names(here) if "t5" in name]
    with pytest.raises(LoadError, match="Permission denied"):
        resolve("./lost+found/model")
    with pytest.raises(LoadError, match="home"):
        resolve("~nobody-of-this-name/model")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("broklet", ["brooklet"]),
        ("Qwen/Qwen3-0.5B", ["Qwen/Qwen3-0.6B"]),
        ("qwen3-0.6b", ["Qwen/Qwen3-0.6B"]),
        ("models/my-lama", ["models/my-llama"]),
        ("./tiny-t6", ["./tiny-t5"]),
        ("something/else-entirely", []),
    ],
)
def test_names_that_are_alike_are_found(name: str, found: list[str]) -> None:
    """In the box, in the hub's cache, beside the folder that was named, and here."""
    assert found == nearest(name)[: max(1, len(found))]


@pytest.mark.parametrize("name", ["./tiny-t6", "broklet", "Qwen/Qwen3-0.5B"])
def test_who_misspells_is_told_the_nearest_names(name: str) -> None:
    """In the message that says that there is no such model."""
    with pytest.raises(LoadError) as refused:
        resolve(name)

    assert str(refused.value).endswith(f"on this machine is {nearest(name)[0]}") or str(
        refused.value
    ).endswith(f"on this machine are {', '.join(nearest(name))}")
