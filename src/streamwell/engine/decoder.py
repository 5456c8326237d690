"""What runs a decoder's layers in PyTorch, whoever wrote them."""

from __future__ import annotations

from typing import Protocol

import torch

from streamwell.engine.attention import Attention, LayerShape
from streamwell.engine.linear import Adapted


class Decoder(Protocol):
    """`block.LeanDecoder`, or `transformers_model.TransformersDecoder`."""

    vocab_size: int
    dtype: torch.dtype
    device: torch.device
    #: What each layer caches per token.
    shapes: list[LayerShape]

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        rows: torch.Tensor,
        attention: Attention,
        adapted: Adapted | None = None,
    ) -> torch.Tensor:
        """Logits `[len(rows), vocab_size]` of some rows of `[num_tokens]` ids.

        `adapted` is what adapters add to some of the tokens, where a decoder takes any.
        """
        ...
