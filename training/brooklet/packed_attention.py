"""Attention for rows that hold several texts, in operations that the compiler fuses."""

from __future__ import annotations

import torch
from transformers import AttentionInterface

NAME = "packed"


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,  # (rows, heads, length, head size)
    key: torch.Tensor,  # (rows, key heads, length, head size)
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    owners: torch.Tensor,  # (rows, length): which text each token belongs to
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Let each token look at those before it in its own text.

    The mask is computed where it is used: reading one from memory would take longer.
    """
    rows, heads, length, size = query.shape
    key_heads = key.shape[1]
    grouped = query.reshape(rows, key_heads, -1, size)  # heads that share a key, one below another
    scores = (grouped @ key.transpose(2, 3)).view(rows, key_heads, -1, length, length)
    place = torch.arange(length)
    same_owner = owners[:, None, None, :, None] == owners[:, None, None, None, :]
    seen = same_owner & (place[:, None] >= place[None, :])
    weights = scores.float().mul(scaling).masked_fill(~seen, -1e30).softmax(-1).to(value.dtype)
    mixed = weights.view(rows, key_heads, -1, length) @ value
    return mixed.view(rows, heads, length, size).transpose(1, 2), None


AttentionInterface.register(NAME, packed_attention)
