"""The mean of the weights of two steps of a run: `python -m training.average`.

It often does better than either (Izmailov et al. 2018, arXiv:1803.05407). All other files are
those of the first folder.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

WEIGHTS = "model.safetensors"


def average(one: Path, other: Path, output: Path) -> None:
    """Write a folder with the mean of the weights of two folders of one architecture."""
    shutil.copytree(one, output, dirs_exist_ok=True)
    ours, theirs = load_file(one / WEIGHTS), load_file(other / WEIGHTS)
    means = {
        name: ((ours[name].float() + theirs[name].float()) / 2).to(ours[name].dtype)
        for name in ours
    }
    save_file(means, output / WEIGHTS, metadata={"format": "pt"})


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m training.average", description=__doc__)
    parser.add_argument("one", type=Path)
    parser.add_argument("other", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    average(arguments.one, arguments.other, arguments.output)


if __name__ == "__main__":
    main()
