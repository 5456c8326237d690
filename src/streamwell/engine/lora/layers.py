"""Which layers of a decoder adapters may change, under our own names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from streamwell.engine.families import DecoderSpec


@dataclass(frozen=True, slots=True)
class Adaptable:
    """Linear layers that read the same input and are computed as one."""

    block: int
    #: Which one of its block: `qkv`, `out`, `up` or `down`.
    place: str
    in_features: int
    #: Their names and numbers of outputs, in order.
    parts: Mapping[str, int]

    @property
    def name(self) -> str:
        """That of the first, which stands for all."""
        return next(iter(self.parts))


def adaptable_layers(spec: DecoderSpec, weights: Mapping[str, torch.Tensor]) -> list[Adaptable]:
    """Projections of attention and of feed-forward layers without experts, block by block."""
    first = ("gate_proj", "up_proj") if spec.is_gated else ("up_proj",)
    attention = {
        "qkv": [f"self_attn.{name}_proj" for name in "qkv"],
        "out": ["self_attn.o_proj"],
    }
    dense = {"up": [f"mlp.{name}" for name in first], "down": ["mlp.down_proj"]}

    def adaptable(block: int, place: str, names: list[str]) -> Adaptable:
        full_names = [f"model.layers.{block}.{name}" for name in names]
        shapes = [weights[f"{name}.weight"].shape for name in full_names]
        sizes = {name: shape[0] for name, shape in zip(full_names, shapes, strict=True)}
        return Adaptable(block, place, shapes[0][1], sizes)

    return [
        adaptable(block, place, names)
        for block in range(spec.num_layers)
        for place, names in (attention | ({} if spec.experts_of(block) else dense)).items()
    ]
