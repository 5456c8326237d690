"""The decoder's layers through `torch.compile`: what stands around attention becomes fewer kernels.

Paged attention stays as it is: what it reads changes shape with every step. All layers share two
compiled functions, in one version for a single token and one for any number; both are made while
the model loads. Inductor keeps them on disk for the next start.
"""

from __future__ import annotations

import os
import shutil

import torch

from streamwell.core.errors import LoadError
from streamwell.engine.block import Block, Halves, LeanDecoder
from streamwell.models import cache_dir


def compiled_halves(device: torch.device) -> Halves:
    """A block's code, compiled when it first runs.

    Raises:
        LoadError: there is no compiler for it.
    """
    _check_compiler(device)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_dir("inductor")))
    # four small graphs need no pool of helper processes, which would be the engine's to end
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    # sizes that change between calls are found out by `warm_up`; with `dynamic=True` those of the
    # weights would be variables in the kernels too. Packed weights cannot be traced.
    return Halves(torch.compile(Block.before), torch.compile(Block.after), may_pack=False)


@torch.inference_mode()
def warm_up(decoder: LeanDecoder) -> None:
    """Compile for one token and for several, so that no request waits for it.

    Raises:
        LoadError: it cannot be compiled on this machine.
    """

    def attention(
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        return query.new_zeros((*query.shape[:2], value.shape[-1]))

    try:
        for num_tokens in (1, 2):
            zeros = torch.zeros(num_tokens, dtype=torch.int64, device=decoder.device)
            decoder.forward(zeros, zeros, zeros, attention)
    except Exception as error:  # Dynamo, Inductor, Triton and the compiler all have their own
        raise LoadError(f"--compile failed on this machine; leave it out: {error}") from error


def _check_compiler(device: torch.device) -> None:
    """Inductor writes C++ for CPUs; Triton wants a C compiler for the launchers of its kernels."""
    language, variable, usual = (
        ("C++", "CXX", "g++") if device.type == "cpu" else ("C", "CC", "gcc")
    )
    name = os.environ.get(variable) or usual
    if shutil.which(name) is None:
        raise LoadError(
            f"--compile needs a {language} compiler, and there is no {name}: install one, "
            f"name one in {variable}, or leave --compile out"
        )
