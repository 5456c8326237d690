"""An output layer of Transformers' code that is the embeddings, too: packed once, for both."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from streamwell.engine.native.linear import PackedLinear
from streamwell.engine.transformers_linears import MISSES_WEIGHTS, in_any_shape


def are_one(head: Any, embedding: Any) -> bool:  # noqa: ANN401 - Transformers is not typed
    """Whether these are plain layers with the same weights, which nobody has let go of."""
    if type(head) is not nn.Linear or type(embedding) is not nn.Embedding:
        return False
    has_weights = head.weight.numel() > 0 and embedding.max_norm is None
    return has_weights and head.weight.data_ptr() == embedding.weight.data_ptr()


def replace_both(
    head: nn.Linear, embedding: nn.Embedding, packed: PackedLinear, run: Callable[[], object]
) -> None:
    """Have both compute with packed weights, and let go of their own.

    They stay as they are if `run`, a call of the model, wants the weights in another way.
    """
    weight = head.weight
    forward: Any = in_any_shape(packed, packed.out_features)
    head.forward = forward  # type: ignore[method-assign]
    embedding.forward = _rows_of(packed, weight.dtype)  # type: ignore[method-assign]
    head.weight = embedding.weight = nn.Parameter(weight.detach().new_empty(0), requires_grad=False)
    try:
        run()
    except MISSES_WEIGHTS:
        del head.forward, embedding.forward
        head.weight = embedding.weight = weight


def _rows_of(packed: PackedLinear, dtype: torch.dtype) -> Any:  # noqa: ANN401 - a forward
    """Embeddings of ids of any shape."""

    def compute(ids: torch.Tensor) -> torch.Tensor:
        rows = torch.empty(ids.numel(), packed.in_features)
        packed.read_rows(array("q", ids.flatten().tolist()), rows)
        return rows.to(dtype).view(*ids.shape, packed.in_features)

    return compute
