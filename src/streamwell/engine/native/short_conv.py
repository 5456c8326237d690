"""Short causal convolutions: `csrc/short_conv.h` as Transformers' code calls it."""

from __future__ import annotations

import ctypes

import torch

from streamwell.engine.native.linear import address
from streamwell.engine.native.structures import Activation, ShortConvStruct

_ACTIVATIONS = {None: Activation.NONE, "silu": Activation.SILU, "swish": Activation.SILU}


class ShortConv:
    """In place of `causal_conv1d_fn` and `causal_conv1d_update`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def whole(
        self,
        hidden_states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        activation: str | None = None,
        *,
        seq_idx: torch.Tensor | None = None,
        **_others: object,
    ) -> torch.Tensor:
        """The convolution of `[batch, channels, num_tokens]`, of the same shape and dtype.

        Args:
            hidden_states: there are zeros before its first token.
            weight: `[channels, taps]`.
            bias: `[channels]`.
            activation: what is done to the results.
            seq_idx: where sequences lie end to end; they may not.

        Raises:
            NotImplementedError: it is called in another way.
        """
        if seq_idx is not None:
            raise NotImplementedError("another kind of convolution")
        return self._run(hidden_states, weight, bias, None, activation)

    def step(
        self,
        hidden_states: torch.Tensor,
        conv_state: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        activation: str | None = None,
        **_others: object,
    ) -> torch.Tensor:
        """The same after the tokens in `conv_state`, `[batch, channels, some]`: it moves on.

        Raises:
            NotImplementedError: it is called in another way.
        """
        if conv_state.shape[-1] != weight.shape[-1]:
            seen = torch.cat([conv_state, hidden_states], -1)
            conv_state.copy_(seen[..., -conv_state.shape[-1] :])
            return self.whole(seen, weight, bias, activation)[..., conv_state.shape[-1] :]
        state = conv_state.transpose(1, 2).float().contiguous()
        out = self._run(hidden_states, weight, bias, state, activation)
        conv_state.copy_(state.transpose(1, 2))
        return out

    def _run(
        self,
        hidden_states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        state: torch.Tensor | None,
        activation: str | None,
    ) -> torch.Tensor:
        batch, num_channels, num_tokens = hidden_states.shape
        fits = len(weight) == num_channels and (bias is None or len(bias) == num_channels)
        if state is not None:
            fits = fits and state.shape == (batch, weight.shape[1], num_channels)
        if activation not in _ACTIVATIONS or not fits:
            raise NotImplementedError("another kind of convolution")
        x = hidden_states.transpose(1, 2).float().contiguous()
        taps = weight.t().float().contiguous()
        bias = None if bias is None else bias.float().contiguous()
        y = torch.empty_like(x)
        self._library.sw_short_conv(
            ShortConvStruct(
                *map(address, (x, taps, bias, state, y)),
                batch,
                num_tokens,
                num_channels,
                len(taps),
                _ACTIVATIONS[activation],
            )
        )
        return y.to(hidden_states.dtype).transpose(1, 2)
