"""Which folders may be loaded while a server runs, and whether they fit into memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from streamwell.core.errors import NotEnoughMemory
from streamwell.models import catalog, memory
from streamwell.models.outline import size_in_memory, size_on_disk


@pytest.fixture
def models_dir(tmp_path: Path) -> Path:
    """Three models, and much that is none."""
    folder = tmp_path / "models"
    for name in ("a", "owner/b", "owner/c d", ".hidden", "owner/.hidden", "x/y/z"):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text("{}")
    (folder / "gguf").mkdir()
    (folder / "gguf" / "config.json").write_text("{}")
    (folder / "gguf" / "m-00001-of-00002.gguf").write_text("")
    (folder / "empty").mkdir()
    (folder / "file").write_text("")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "config.json").write_text("{}")
    return folder


def test_models_are_named_by_their_folders(models_dir: Path) -> None:
    """A folder, or one within an owner's folder; each is found by its name."""
    names = ["a", "owner/b", "owner/c d"]

    assert names == catalog.names(models_dir)
    assert [models_dir / name for name in names] == [catalog.find(models_dir, n) for n in names]


BAD_NAMES = [
    "", ".", "..", "/", "a/", "/a", "../outside", "a/../../outside", "owner/../a", "x/y/z",
    ".hidden", "owner/.hidden", "empty", "file", "gguf", "no",
    "a" * 300, "a\0", "a\n", "..\\outside", "owner", "~",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_no_name_leads_elsewhere(models_dir: Path, name: str) -> None:
    """Not up, not into what is hidden, and to no folder that is no model."""
    assert catalog.find(models_dir, name) is None


def test_an_absolute_name_leads_nowhere(models_dir: Path) -> None:
    """Joined to a folder it would be the other one."""
    assert catalog.find(models_dir, str(models_dir.parent / "outside")) is None


def test_a_folder_that_is_not_there_has_no_models(tmp_path: Path) -> None:
    """It may come later."""
    assert [] == catalog.names(tmp_path / "no")


def test_a_large_collection_is_cut(models_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking through it takes a bounded time."""
    monkeypatch.setattr(catalog, "MAX_MODELS", 2)

    assert ["a", "owner/b"] == catalog.names(models_dir)


def test_what_is_larger_than_what_is_left_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights as they are rounded, cache, and process against the memory that is free."""
    free = memory.PROCESS_BYTES + 1000
    monkeypatch.setattr(memory, "available_bytes", lambda: free)

    memory.check_fits(1000, "none", 0)
    memory.check_fits(1600, "int8", 0)
    memory.check_fits(500, "none", 500)
    for too_large in [(1001, "none", 0), (1700, "int8", 0), (501, "none", 500)]:
        with pytest.raises(NotEnoughMemory, match="300 MiB are free"):
            memory.check_fits(*too_large)


def test_coded_matrices_take_three_quarters(tmp_path: Path) -> None:
    """Those in bfloat16; norms, and what is saved in other types, stay as large as their files."""
    tensors = {
        "model.norm.weight": torch.zeros(64, dtype=torch.bfloat16),
        "model.layers.0.mlp.up_proj.weight": torch.zeros(64, 32, dtype=torch.bfloat16),
        "lm_head.weight": torch.zeros(64, 32),
    }
    (tmp_path / "config.json").write_text("{}")
    save_file(tensors, tmp_path / "model.safetensors")

    size = size_in_memory(tmp_path, keeps_rounding=True)

    assert size == size_on_disk(tmp_path)
    assert size - 64 * 32 * 2 // 4 == size_in_memory(tmp_path, keeps_rounding=True, is_coded=True)


def test_a_container_has_its_own_limit(tmp_path: Path) -> None:
    """What it may take less what it has taken, but for cached files, which give way."""
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("3000\n")
    (tmp_path / "memory.stat").write_text("anon 2500\ninactive_file 400\n")

    assert 2400 == memory.available_bytes(tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_bytes(tmp_path) > 5000
    assert memory.available_bytes(tmp_path / "no") > 5000
