"""Mamba-2's recurrence: `csrc/state_scan.h` as Transformers' code calls it."""

from __future__ import annotations

import ctypes
import math

import torch
from torch.nn import functional

from streamwell.engine.native.linear import address
from streamwell.engine.native.structures import StateScanStruct

#: Elements of a row of a state that are computed together.
_LANES = 16


class StateScan:
    """In place of `mamba2_chunk_scan` and `mamba2_selective_state_update`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def whole(
        self,
        hidden_states: torch.Tensor,
        dt: torch.Tensor,
        A: torch.Tensor,  # noqa: N803 - their name
        B: torch.Tensor,  # noqa: N803
        C: torch.Tensor,  # noqa: N803
        *,
        D: torch.Tensor | None = None,  # noqa: N803
        dt_bias: torch.Tensor | None = None,
        dt_softplus: bool = False,
        dt_limit: tuple[float, float] = (0.0, math.inf),
        initial_states: torch.Tensor | None = None,
        return_final_states: bool = False,
        z: torch.Tensor | None = None,
        seq_idx: torch.Tensor | None = None,
        **_others: object,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """What each token reads, float32, and the states after the last one if they are wanted.

        Args:
            hidden_states: `[batch, num_tokens, num_heads, head_dim]`.
            dt: `[batch, num_tokens, num_heads]`, how long the step of each token is.
            A: `[num_heads]`, how fast a state goes, below zero.
            B: `[batch, num_tokens, num_groups, state_dim]`, where in the state a token goes.
            C: the same, what is read of it.
            D: `[num_heads]`, how much of a token is read past the state.
            dt_bias: `[num_heads]`, added to `dt`.
            dt_softplus: whether that is a logarithm of some kind.
            dt_limit: the least and the longest step.
            initial_states: `[batch, num_heads, head_dim, state_dim]`, overwritten; `None` is zeros.
            return_final_states: whether states are wanted.
            z: a gate; there may be none.
            seq_idx: where sequences lie end to end; they may not.

        Raises:
            NotImplementedError: it is called in another way.
        """
        if z is not None or seq_idx is not None:
            raise NotImplementedError("another kind of scan")
        if initial_states is None:
            batch, _, num_heads, head_dim = hidden_states.shape
            state = torch.zeros(batch, num_heads, head_dim, B.shape[-1])
        else:
            state = initial_states.float().contiguous()
        of_heads = (dt_bias, A, D)
        limits = (dt_softplus, *dt_limit)
        out = self._run(hidden_states, dt, B, C, of_heads, state, limits)
        return (out, state) if return_final_states else out

    def step(
        self,
        state: torch.Tensor,
        hidden_states: torch.Tensor,
        dt: torch.Tensor,
        A: torch.Tensor,  # noqa: N803 - their name
        B: torch.Tensor,  # noqa: N803
        C: torch.Tensor,  # noqa: N803
        D: torch.Tensor | None = None,  # noqa: N803
        *,
        z: torch.Tensor | None = None,
        dt_bias: torch.Tensor | None = None,
        dt_softplus: bool = False,
        **_others: object,
    ) -> torch.Tensor:
        """The same for one token after `state`, which moves on; without a dimension for tokens.

        Steps, their bias, rates and skips are given for each element of a head, though all are the
        same. `z` is a gate.

        Raises:
            NotImplementedError: it is called in another way.
        """
        bias, skips = (None if each is None else each[:, 0] for each in (dt_bias, D))
        own = state.float().contiguous()
        out = self._run(
            hidden_states[:, None],
            dt[:, None, :, 0],
            B[:, None],
            C[:, None],
            (bias, A[:, 0, 0], skips),
            own,
            (dt_softplus, -math.inf, math.inf),
        )[:, 0]
        state.copy_(own)
        if z is not None:
            out = out * functional.silu(z.float())
        return out.to(hidden_states.dtype)

    def _run(
        self,
        x: torch.Tensor,
        steps: torch.Tensor,
        b: torch.Tensor,
        c: torch.Tensor,
        of_heads: tuple[torch.Tensor | None, torch.Tensor, torch.Tensor | None],
        state: torch.Tensor,
        limits: tuple[bool, float, float],
    ) -> torch.Tensor:
        """`of_heads`: the bias of steps, rates and skips; `limits`: softplus and two bounds."""
        fits = (
            (b.shape, b.shape[:2]) == (c.shape, x.shape[:2])
            and steps.shape == x.shape[:3]
            and state.shape == (len(x), *x.shape[2:], b.shape[3])
            and all(each is None or each.shape == x.shape[2:3] for each in of_heads)
        )
        if not fits or b.shape[3] % _LANES or x.shape[2] % b.shape[2]:
            raise NotImplementedError("another kind of scan")
        x, steps, b, c = (tensor.float().contiguous() for tensor in (x, steps, b, c))
        bias, rates, skips = (None if x is None else x.float().contiguous() for x in of_heads)
        out = torch.empty_like(x)
        self._library.sw_state_scan(
            StateScanStruct(
                *map(address, (x, steps, bias, rates, b, c, skips, state, out)),
                *x.shape[:3],
                b.shape[2],
                x.shape[3],
                b.shape[3],
                *limits,
            )
        )
        return out
