"""Runs a token through a model that was just assembled: what does not fit shows before a request.

A model whose first logits are not finite would refuse every request; it is not served at all.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from streamwell.core.errors import LoadError
from streamwell.core.types import SamplingParams
from streamwell.engine.attention import sequence_attention
from streamwell.engine.block import LeanDecoder
from streamwell.engine.families import DecoderSpec
from streamwell.engine.native.decoder import NativeDecoder
from streamwell.engine.sequence import Chunk, Sequence


def try_out_native(model: NativeDecoder, spec: DecoderSpec) -> None:
    """Needs no cache yet, and leaves none that is of use.

    Raises:
        LoadError: no token has finite logits.
    """
    model.allocate(1)  # a cache of its own: the loader's replaces it

    def logits_of(token_id: int) -> torch.Tensor:
        sequence = Sequence("", [token_id], SamplingParams(max_tokens=1))
        sequence.block_ids = [1]
        return model.forward([Chunk(sequence, 0, 1)], [0])

    _check_finite(logits_of, model.vocab_size, spec)


def try_out_torch(decoder: LeanDecoder, spec: DecoderSpec) -> None:
    """The same, without any cache.

    Raises:
        LoadError: no token has finite logits.
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
        attended = sequence_attention(query, key, value, None, scale, softcap, sinks)
        # on CPUs PyTorch's attention hides what is not finite in queries and keys
        return attended + (query * 0).sum() + (key * 0).sum()

    def logits_of(token_id: int) -> torch.Tensor:
        zero = torch.zeros(1, dtype=torch.int64, device=decoder.device)
        return decoder.forward(zero + token_id, zero, zero, attention)

    _check_finite(logits_of, decoder.vocab_size, spec)


def _check_finite(
    logits_of: Callable[[int], torch.Tensor], vocab_size: int, spec: DecoderSpec
) -> None:
    # one embedding may be damaged, and that of padding often is nothing: others are tried then
    token_ids = (0, vocab_size // 2, vocab_size - 1)
    if not any(bool(logits_of(token_id).amax().isfinite()) for token_id in token_ids):
        raise LoadError(
            f"the model's logits are not finite: look at {_suspects(spec)} in its config; "
            "else its weights are damaged"
        )


def _suspects(spec: DecoderSpec) -> str:
    """The fields whose values may be to blame."""
    epsilon = "the epsilon of its norms" if spec.norm == "layer" else "rms_norm_eps"
    thetas = {rope.theta: None for rope in spec.ropes if rope is not None}  # in order
    suspects = [f"{epsilon} ({spec.norm_eps})", *(f"rope_theta ({theta})" for theta in thetas)]
    return " and ".join(suspects)
