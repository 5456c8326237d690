"""The mean of the weights of two steps of a training."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from training.average import average


def test_weights_are_averaged_and_all_else_is_copied(tmp_path: Path) -> None:
    """In their own type; what is not a weight is that of the first folder."""
    for name, value in (("one", 1.0), ("other", 2.0)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(name)
        save_file({"w": torch.full((2,), value).half()}, folder / "model.safetensors")
    average(tmp_path / "one", tmp_path / "other", tmp_path / "mean")

    (mean,) = load_file(tmp_path / "mean" / "model.safetensors").values()
    assert (torch.float16, [1.5, 1.5]) == (mean.dtype, mean.tolist())
    assert "one" == (tmp_path / "mean" / "config.json").read_text()
