"""Rotary position embeddings (Su et al. 2021), halves rotated as in Transformers' Llama."""

from __future__ import annotations

import math

import torch

from streamwell.engine.families import DecoderSpec, Rope

#: Cosines and sines of a step's positions, each `[num_tokens, 1, head_dim]`, with the sines of the
#: first half negative; `None`: nothing turns.
Turns = tuple[torch.Tensor, torch.Tensor] | None


def waves(rope: Rope, head_dim: int, num_positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of all positions, each `[num_positions, head_dim / 2]` float32.

    Pairs of elements that stay as they are come last.
    """
    angles = torch.outer(torch.arange(num_positions).float(), _frequencies(rope, head_dim))
    magnitude = torch.ones(head_dim // 2)
    magnitude[: rope.dim // 2] = rope.magnitude
    return angles.cos() * magnitude, angles.sin() * magnitude


def _frequencies(rope: Rope, head_dim: int) -> torch.Tensor:
    """`[head_dim / 2]` float32: how far each pair turns from one position to the next."""
    steps = torch.arange(0, rope.dim, 2, dtype=torch.float32) / rope.dim
    turning = 1.0 / (torch.tensor(rope.divisors) * rope.theta**steps)
    if rope.llama3 is not None:
        turning = _llama3(turning, rope)
    return torch.cat((turning, torch.zeros((head_dim - rope.dim) // 2)))


def _llama3(turning: torch.Tensor, rope: Rope) -> torch.Tensor:
    """What Llama 3.1 does for long contexts, after Meta's description in Transformers' docs."""
    scaling = rope.llama3
    assert scaling is not None
    num_turns = scaling.original_max_positions * turning / (2 * math.pi)
    share = (num_turns - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    share = share.clamp(0, 1)
    return (1 - share) * turning / scaling.factor + share * turning


class Rotary:
    """The cosines and sines of all positions, once for each kind of layer."""

    def __init__(
        self, spec: DecoderSpec, num_positions: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        kinds = list(dict.fromkeys(spec.ropes))
        #: Which of the kinds each layer has.
        self.kind_of_layer = [kinds.index(rope) for rope in spec.ropes]
        self._tables = [
            None if rope is None else _table(rope, spec.head_dim, num_positions, dtype, device)
            for rope in kinds
        ]

    def at(self, positions: torch.Tensor) -> list[Turns]:
        """For each kind of layer, what `rotate` needs for `[num_tokens]` positions."""
        return [
            None if table is None else (table[0][positions][:, None], table[1][positions][:, None])
            for table in self._tables
        ]


def _table(
    rope: Rope, head_dim: int, num_positions: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    cos, sin = waves(rope, head_dim, num_positions)
    tables = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
    return tables[0].to(device, dtype), tables[1].to(device, dtype)
