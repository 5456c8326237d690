"""Which layers of a decoder adapters may change, under our own names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from streamwell.engine.families import DecoderSpec


@dataclass(frozen=True, slots=True)
class Adaptable:
    """Linear layers that read the same input and are computed as one."""

    in_features: int
    #: Their names and numbers of outputs, in order.
    parts: Mapping[str, int]

    @property
    def name(self) -> str:
        """That of the first, which stands for all."""
        return next(iter(self.parts))


def adaptable_layers(spec: DecoderSpec, weights: Mapping[str, torch.Tensor]) -> list[Adaptable]:
    """Projections of attention and of feed-forward layers without experts, block by block."""

    def adaptable(*names: str) -> Adaptable:
        shapes = {name: weights[f"{name}.weight"].shape for name in names}
        return Adaptable(shapes[names[0]][1], {name: shape[0] for name, shape in shapes.items()})

    layers: list[Adaptable] = []
    for layer in range(spec.num_layers):
        attention, mlp = (f"model.layers.{layer}.{room}." for room in ("self_attn", "mlp"))
        layers.append(adaptable(*(f"{attention}{name}_proj" for name in "qkv")))
        layers.append(adaptable(f"{attention}o_proj"))
        if spec.experts is not None and layer in spec.experts.layers:
            continue
        first = ("gate_proj", "up_proj") if spec.is_gated else ("up_proj",)
        layers.append(adaptable(*(f"{mlp}{name}" for name in first)))
        layers.append(adaptable(f"{mlp}down_proj"))
    return layers
