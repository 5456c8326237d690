"""The gated delta rule of linear attention: `csrc/delta_rule.h` as Transformers' code calls it."""

from __future__ import annotations

import ctypes

import torch

from streamwell.engine.native.structures import DeltaRuleStruct

#: Columns of a state that are computed together.
_LANES = 16


class DeltaRule:
    """In place of `chunk_gated_delta_rule` and of `fused_recurrent_gated_delta_rule`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        g: torch.Tensor,
        beta: torch.Tensor,
        initial_state: torch.Tensor | None = None,
        output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False,
        cu_seqlens: torch.Tensor | None = None,
        **_others: object,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What each token reads, and the states after the last one; `initial_state` is overwritten.

        Args:
            query: `[batch, num_tokens, num_key_heads, key_dim]`.
            key: the same.
            value: `[batch, num_tokens, num_value_heads, value_dim]`.
            g: `[batch, num_tokens, num_value_heads]`, the logarithm of what is kept of the state.
            beta: the same, how much of what is new goes into it.
            initial_state: `[batch, num_value_heads, key_dim, value_dim]` float32; `None` is zeros.
            output_final_state: whether states are wanted.
            use_qk_l2norm_in_kernel: queries and keys are brought to length one; they must be.
            cu_seqlens: where sequences lie end to end; they may not.

        Raises:
            NotImplementedError: it is called in another way.
        """
        batch, num_tokens, num_key_heads, key_dim = query.shape
        num_value_heads, value_dim = value.shape[-2:]
        if initial_state is None:
            state = torch.zeros(batch, num_value_heads, key_dim, value_dim)
        else:
            state = initial_state.float().contiguous()
        is_other = not use_qk_l2norm_in_kernel or cu_seqlens is not None
        if is_other or not _fit(query, key, value, g, beta, state):
            raise NotImplementedError("another kind of gated delta rule")
        inputs = [tensor.float().contiguous() for tensor in (query, key, value, g, beta)]
        out = torch.empty(batch, num_tokens, num_value_heads, value_dim)
        self._library.sw_delta_rule(
            DeltaRuleStruct(
                *(tensor.data_ptr() for tensor in (*inputs, state, out)),
                batch,
                num_tokens,
                num_key_heads,
                num_value_heads,
                key_dim,
                value_dim,
            )
        )
        return out.to(query.dtype), state if output_final_state else None


def _fit(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
) -> bool:
    """Whether these are of the shapes that they should have, and that the helper computes."""
    batch, _, num_key_heads, key_dim = query.shape
    num_value_heads, value_dim = value.shape[-2:]
    return (
        (query.shape, query.shape[:2]) == (key.shape, value.shape[:2])
        and g.shape == beta.shape == value.shape[:3]
        and state.shape == (batch, num_value_heads, key_dim, value_dim)
        and value_dim % _LANES == 0
        and num_value_heads % num_key_heads == 0
    )
