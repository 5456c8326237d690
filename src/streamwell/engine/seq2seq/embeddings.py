"""Which tables an encoder-decoder's embeddings, positions and head come from."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from streamwell.core.errors import LoadError
from streamwell.engine.seq2seq.families import Seq2SeqSpec

#: By our names (`families`).
Weights = Mapping[str, torch.Tensor]

#: Rows of a table of learned positions before that of position 0.
_POSITION_OFFSET = 2


def embedding_weight(weights: Weights, name: str) -> torch.Tensor:
    """`[vocab_size, hidden_size]` of the tower `name`.

    Both towers, and often the head, share it; it is saved under one of these names, or all.
    """
    for key in (f"{name}.embedding", "shared", "decoder.embedding", "encoder.embedding", "lm_head"):
        if f"{key}.weight" in weights:
            return weights[f"{key}.weight"]
    raise LoadError("the model has no embeddings")


def position_weight(
    spec: Seq2SeqSpec, weights: Weights, name: str, max_len: int
) -> torch.Tensor | None:
    """`[at least max_len, hidden_size]` that are added to embeddings, if any are."""
    if spec.relative_bias is not None:
        return None
    key = f"{name}.positions"
    if key not in weights and not spec.has_learned_positions:
        embedding = embedding_weight(weights, name)
        return sinusoids(max_len, embedding.shape[1]).to(embedding)
    table = weights[key][_POSITION_OFFSET if spec.has_learned_positions else 0 :]
    if len(table) < max_len:
        raise LoadError(f"the {name} has {len(table)} positions, fewer than its config says")
    return table


def sinusoids(num_positions: int, size: int) -> torch.Tensor:
    """`[num_positions, size]`: sines, then cosines (Vaswani et al. 2017, not interleaved)."""
    exponents = torch.arange(0, size, 2, dtype=torch.float64) / size
    angles = torch.outer(torch.arange(num_positions).double(), 10000.0**-exponents)
    return torch.cat((angles.sin(), angles.cos()), -1)[:, :size].float()


def head_weight(weights: Weights) -> torch.Tensor:
    """`[vocab_size, hidden_size]`: the head's own, or the decoder's embeddings themselves."""
    return weights.get("lm_head.weight", embedding_weight(weights, "decoder"))


def head_bias(spec: Seq2SeqSpec, weights: Weights) -> torch.Tensor | None:
    """`[vocab_size]`, if there are any; what is never said has minus infinity."""
    weight = head_weight(weights)
    bias = weights.get("lm_head.bias", weight.new_zeros(len(weight))).flatten().clone()
    banned = [token_id for token_id in spec.banned_ids if 0 <= token_id < len(bias)]
    bias[banned] = float("-inf")
    return bias if bool(bias.any()) else None
