"""What layers that are not attention remember of sequences, as Transformers' code asks for it.

A layer of linear attention, a state space or a short convolution has no keys and values for each
token, but a state of one size that every token changes. Transformers' code keeps it in its `Cache`,
together with the keys and values; in ours those pass through, since they are in the paged cache.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionCacheLayerMixin,
)

from streamwell.engine.attention import PagedAttention, PagedCache
from streamwell.engine.batch_layout import BatchLayout

_TENSORS = ("conv_states", "recurrent_states")


class _Passing(DynamicLayer):  # type: ignore[misc] # Transformers is not typed
    """Attention: its keys and values are elsewhere."""

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *_args: object,
        **_kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return key_states, value_states


class _PassingWithState(LinearAttentionAndFullAttentionLayer):  # type: ignore[misc]
    """A layer that is both."""

    update = _Passing.update


class States:
    """The states of one sequence or of several, the first dimension of all tensors."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache

    @staticmethod
    def layers_with_state(config: Any) -> frozenset[int]:  # noqa: ANN401 - Transformers is not typed
        """The numbers of a model's layers that have one; none if its cache is not known."""
        try:
            layers = DynamicCache(config=config).layers
        except (AttributeError, LookupError, NotImplementedError, TypeError, ValueError):
            return frozenset()
        is_stateful = (isinstance(layer, LinearAttentionCacheLayerMixin) for layer in layers)
        return frozenset(number for number, has_one in enumerate(is_stateful) if has_one)

    @classmethod
    def fresh(cls, config: Any) -> States:  # noqa: ANN401 - Transformers is not typed
        """Of a sequence that has not begun."""
        return cls(Cache(layers=[_passing(layer) for layer in DynamicCache(config=config).layers]))

    @classmethod
    def joined(cls, parts: Sequence[States]) -> States:
        """Those of several sequences that have begun, in order."""
        layers = zip(*(part.cache.layers for part in parts), strict=True)
        return cls(Cache(layers=[_with(same, torch.cat) for same in layers]))

    def split(self, count: int) -> list[States]:
        """Each of the `count` sequences by itself."""

        def one(row: int) -> States:
            def rows(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
                return tensors[0][row : row + 1].clone()  # a view would keep all of them alive

            return States(Cache(layers=[_with([layer], rows) for layer in self.cache.layers]))

        return [one(row) for row in range(count)]

    @property
    def num_bytes(self) -> int:
        """What they take."""
        return sum(
            tensor.numel() * tensor.element_size()
            for layer in self.cache.layers
            for name in _TENSORS
            for tensor in getattr(layer, name, {}).values()
            if tensor is not None
        )


class StatefulAttention(PagedAttention):
    """Attention of a step, and the states of its sequences."""

    def __init__(
        self, cache: PagedCache, layout: BatchLayout, states: States, *, is_batch: bool
    ) -> None:
        """`is_batch`: one token of each of several sequences; else some of a single one."""
        super().__init__(cache, layout)
        self.states, self.is_batch = states, is_batch


def _passing(layer: Any) -> Any:  # noqa: ANN401 - Transformers is not typed
    """A layer of Transformers' cache, without keys and values."""
    if not isinstance(layer, LinearAttentionCacheLayerMixin):
        return _Passing()
    if not isinstance(layer, DynamicLayer):
        return layer
    return _PassingWithState(number_of_states=layer.number_of_states)


def _with(layers: Sequence[Any], combine: Any) -> Any:  # noqa: ANN401 - Transformers is not typed
    """The first of some like layers, with what `combine` makes of their tensors."""
    layer = copy.copy(layers[0])
    for name, value in vars(layer).items():
        if isinstance(value, dict):  # by the number of the state
            setattr(layer, name, dict(value))
    for name in _TENSORS:
        for number, tensor in getattr(layer, name, {}).items():
            if tensor is not None:
                getattr(layer, name)[number] = combine([getattr(x, name)[number] for x in layers])
    return layer
