"""Attention for rows that hold several texts, in operations that the compiler fuses."""

from __future__ import annotations

import torch
from transformers import AttentionInterface

NAME = "packed"
QUERIES = 256  # at a time, with the keys up to their last one


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,  # (rows, heads, length, head size)
    key: torch.Tensor,  # (rows, key heads, length, head size)
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    owners: torch.Tensor,  # int32 (rows, length): which text each token belongs to
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Let each token look at those before it in its own text.

    The mask is computed where it is used: reading one from memory would take longer. Of a long row
    nearly half the scores lie beyond the last query of their part, and are not computed.
    """
    rows, heads, length, size = query.shape
    key_heads = key.shape[1]
    grouped = query.reshape(rows, key_heads, -1, length, size)  # heads that share a key
    place = torch.arange(length, dtype=owners.dtype)
    parts = []
    for start in range(0, length, QUERIES):
        end = min(start + QUERIES, length)
        asked = grouped[:, :, :, start:end].reshape(rows, key_heads, -1, size)
        scores = asked @ key[:, :, :end].transpose(2, 3)
        same_owner = owners[:, None, None, start:end, None] == owners[:, None, None, None, :end]
        seen = same_owner & (place[start:end, None] >= place[None, :end])
        unseen = torch.where(seen, 0.0, -1e30)
        split = scores.view(rows, key_heads, -1, end - start, end)
        weights = (split.float() * scaling + unseen).softmax(-1).to(value.dtype)
        mixed = weights.view(rows, key_heads, -1, end) @ value[:, :, :end]
        parts.append(mixed.view(rows, heads, end - start, size))
    return torch.cat(parts, dim=2).transpose(1, 2), None


AttentionInterface.register(NAME, packed_attention)
