"""What the trainers share: schedule, checkpoint, options, and the folder that they write."""

from __future__ import annotations

import argparse
import ctypes
import platform
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast

from streamwell.engine.native import library
from training.brooklet.tokenizer import load_tokenizer, save_tokenizer

WARM_UP = 100
# Parameters of glibc's `mallopt`, as its header numbers them.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def prepare(threads: int) -> None:
    """Compute with so many threads, and have the C library keep what is freed.

    A step frees and asks for the same large blocks again, and pages that are new to a process take
    its layers a third of their time. Elsewhere than with glibc they stay as they are.
    """
    torch.set_num_threads(threads)
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(_TOP_PAD, 2**27)


def has_fast_bfloat16() -> bool:
    """Whether this CPU multiplies matrices of bfloat16 faster than those of float32.

    The native helper knows; where it was not compiled, the answer is no.
    """
    helper = library.best()
    return helper is not None and bool(helper.sw_has_fast_pairs())


def rate_share(step: int, steps: int, cool_down: float) -> float:
    """The share of the peak rate: rise to it, stay, and fall in a straight line at the end.

    The fall takes the last `cool_down`, a share of all steps.
    """
    return min(1.0, (step + 1) / WARM_UP, (steps - step) / (cool_down * steps))


def kept_tokenizer(
    work: Path, build: Callable[[int], PreTrainedTokenizerFast], seed: int
) -> PreTrainedTokenizerFast:
    """The tokenizer of a run: built when the run begins, and kept beside its checkpoint."""
    folder = work / "tokenizer"
    if folder.exists():
        return load_tokenizer(folder)
    tokenizer = build(seed)
    save_tokenizer(tokenizer, folder)
    return tokenizer


class Checkpoint:
    """Everything that a run needs to go on, in one file."""

    def __init__(
        self, work: Path, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer]
    ) -> None:
        self._file = work / "checkpoint.pt"
        self._model = model
        self._optimizers = optimizers

    def load(self) -> int:
        """Restore what was saved, if anything was; returns the number of steps done."""
        if not self._file.exists():
            return 0
        state = torch.load(self._file)
        self._model.load_state_dict(state["model"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        return int(state["step"])

    def save(self, step: int) -> None:
        """Save; a run that is stopped meanwhile keeps the file of before."""
        partial = self._file.with_suffix(".partial")
        state = {
            "model": self._model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "step": step,
        }
        torch.save(state, partial)
        partial.replace(self._file)


def export(
    model: PreTrainedModel,
    generation: GenerationConfig,
    tokenizer: PreTrainedTokenizerFast,
    target: Path,
) -> None:
    """Write the finished folder file by file, so that a reader never meets half a file.

    The weights are stored in half precision; the configuration says float32, in which they are
    computed with, so that every machine gives the same text.
    """
    target.mkdir(parents=True, exist_ok=True)
    staging = target.with_name(target.name + ".partial")
    shutil.rmtree(staging, ignore_errors=True)
    stored = type(model)(model.config).half()
    stored.load_state_dict(model.state_dict())
    stored.generation_config = generation
    stored.save_pretrained(staging)
    stored.config.dtype = "float32"  # only now: saving the weights writes their own
    stored.config.save_pretrained(staging)
    save_tokenizer(tokenizer, staging)
    for file in staging.iterdir():
        file.chmod(0o644)
        file.replace(target / file.name)
    staging.rmdir()


def parse_arguments(
    description: str, *, steps: int, threads: int = 0, work: str = "", output: Path
) -> argparse.Namespace:
    """Read a trainer's command line; the values given here are the defaults.

    Without a folder for its `work`, a trainer keeps no checkpoints. One that has a process for each
    core has no `threads` to choose.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--seed", type=int, default=7)
    if work:
        parser.add_argument("--work", type=Path, default=Path(work), help="checkpoints")
        parser.add_argument("--save-every", type=int, default=250)
    parser.add_argument("--output", type=Path, default=output, help="the finished folder")
    if threads:
        parser.add_argument("--threads", type=int, default=threads)
    return parser.parse_args()
