"""Whether Triton's kernels compute a decoder: where they are there, and give what PyTorch gives.

Triton comes with PyTorch for NVIDIA GPUs on Linux. It compiles kernels when they are first called,
with a C compiler for what launches them, and keeps them on disk; so they are tried out first.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import torch

from streamwell.core.types import SamplingParams
from streamwell.engine.attention import LayerShape, PagedCache
from streamwell.engine.decode_graphs import LayOutDecodes
from streamwell.engine.families import DecoderSpec
from streamwell.engine.operations import IN_PYTORCH, Operations
from streamwell.engine.sequence import Chunk, Sequence
from streamwell.engine.torch_model import LayOut, paged_attention
from streamwell.models import cache_dir

#: Norm of what differs over the norm of what PyTorch gives, for 16 bits and for 32.
_TOLERANCES = {2: 2e-2, 4: 1e-4}
#: Tokens in the cache of the sequence that is tried, and those of a prompt beside it.
_CONTEXT, _PROMPT = 20, 3


class Kernels(NamedTuple):
    """What takes the place of PyTorch's."""

    operations: Operations
    lay_out: LayOut
    lay_out_decodes: LayOutDecodes


def choose_kernels(
    device: torch.device, dtype: torch.dtype, spec: DecoderSpec, block_size: int
) -> tuple[Kernels | None, tuple[str, ...]]:
    """The kernels, if the device is a GPU and they work; and what is to be said."""
    if device.type != "cuda":
        return None, ()
    os.environ.setdefault("TRITON_CACHE_DIR", str(cache_dir("triton")))
    try:
        if device.index is not None:
            torch.cuda.set_device(device)  # where Triton launches kernels
        kernels = load_kernels()
        is_right = are_right(kernels, device, dtype, spec, block_size)
        reason = "" if is_right else "their results are wrong"
    except Exception as error:  # noqa: BLE001 - Triton, compiler and driver all have their own
        reason = f"{type(error).__name__}: {error}"
    if reason:
        return None, (f"Triton's kernels do not work here, which makes it slower: {reason}",)
    return kernels, ()


def load_kernels() -> Kernels:
    """Raises `ImportError`: there is no Triton."""
    from streamwell.engine.fused_kernels import FUSED
    from streamwell.engine.kernel_attention import of_chunks, of_decodes

    return Kernels(FUSED, of_chunks, of_decodes)


@torch.inference_mode()
def are_right(
    kernels: Kernels, device: torch.device, dtype: torch.dtype, spec: DecoderSpec, block_size: int
) -> bool:
    """Compare with PyTorch, in all that a decoder's layers ask for."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    tolerance = _TOLERANCES[dtype.itemsize]
    num_tokens, num_kv_heads, dim = 1 + _PROMPT, spec.num_kv_heads, spec.head_dim
    both = random(num_tokens, spec.num_heads + num_kv_heads, dim)
    turns = random(num_tokens, 1, dim), random(num_tokens, 1, dim)
    pairs = [each.rotate(both, *turns) for each in (kernels.operations, IN_PYTORCH)]
    found = [_is_near(tolerance, *pairs)]
    if spec.is_gated:
        inner = random(num_tokens, 2 * dim)
        gates = (each.gate(spec.activation)(inner) for each in (kernels.operations, IN_PYTORCH))
        found.append(_is_near(tolerance, *gates))
    value, old = random(num_tokens, num_kv_heads, dim), random(_CONTEXT, num_kv_heads, dim)
    for window in set(spec.windows):
        attended = [
            _attend(lay_out, spec, window, block_size, both, value, old)
            for lay_out in (kernels.lay_out, paged_attention)
        ]
        found.append(_is_near(tolerance, *attended))
    return all(found)


def _attend(
    lay_out: LayOut,
    spec: DecoderSpec,
    window: int | None,
    block_size: int,
    both: torch.Tensor,
    value: torch.Tensor,
    old: torch.Tensor,
) -> torch.Tensor:
    """A token of a sequence that has `old` keys and values, beside a prompt."""
    shape = LayerShape(spec.num_kv_heads, spec.head_dim, spec.head_dim)
    num_blocks = _CONTEXT // block_size + 1  # with room for a token more
    cache = PagedCache([shape], num_blocks + _PROMPT, block_size, value.dtype, value.device)
    for side in (cache.keys[0], cache.values[0]):
        side[block_size : block_size + len(old)] = old
    blocks = range(1, num_blocks + 1 + _PROMPT)
    seqs = [
        Sequence("", [0] * count, SamplingParams(max_tokens=1), block_ids=list(block_ids))
        for count, block_ids in (
            (_CONTEXT + 1, blocks[:num_blocks]),
            (_PROMPT, blocks[num_blocks:]),
        )
    ]
    chunks = [Chunk(seqs[0], _CONTEXT, 1), Chunk(seqs[1], 0, _PROMPT)]
    query, key = both[:, : spec.num_heads], both[:, spec.num_heads :]
    return lay_out(cache, chunks)(
        0,
        query,
        key,
        value,
        scale=spec.scale,
        window=window,
        softcap=spec.attention_softcap,
        sinks=query[0, :, 0].contiguous() if spec.has_sinks else None,
    )


def _is_near(tolerance: float, found: torch.Tensor, expected: torch.Tensor) -> bool:
    difference = (found.float() - expected.float()).norm()
    return bool(difference <= tolerance * expected.float().norm())
