"""Attention of queries over keys and values that lie side by side, with what PyTorch leaves out."""

from __future__ import annotations

import torch
from torch.nn import functional


def dot_product(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    softcap: float | None,
    sinks: torch.Tensor | None = None,
    *,
    is_causal: bool = False,
) -> torch.Tensor:
    """PyTorch's attention, or the same step by step with scores that are capped, or have sinks.

    Args:
        query: `[..., count, key_dim]`.
        keys: `[..., length, key_dim]`.
        values: `[..., length, value_dim]`.
        mask: added to the scores; `None` shows everything, or what `is_causal` leaves.
        scale: factor of the scores.
        softcap: scores `x` become `softcap * tanh(x / softcap)`; `None` leaves them.
        sinks: `[..., count or 1, 1]`: a score more for each row, of a key without a value.
        is_causal: each query sees keys up to its own place; for as many keys as queries.

    Returns:
        `[..., count, value_dim]`.
    """
    if softcap is None and sinks is None:
        return functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, is_causal=is_causal, scale=scale
        )
    scores = query @ keys.transpose(-1, -2) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if is_causal:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        mask = additive(visible.tril(), scores.dtype)
    if mask is not None:
        scores = scores + mask
    if sinks is not None:
        scores = torch.cat((scores, sinks.expand(*scores.shape[:-1], 1)), -1)
    weights = scores.softmax(-1, dtype=torch.float32).to(values.dtype)
    return weights[..., : keys.shape[-2]] @ values


def additive(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The mask to add to scores: zero where something is visible, else minus infinity."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(
        ~visible, float("-inf")
    )
