"""Weights as files have them, and what is known of them before they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from streamwell.models.gguf_header import KEPT, ROUNDED_ANEW, TYPES


@dataclass(frozen=True, slots=True)
class SavedRows:
    """A matrix in one of the types of `KEPT`: rows of blocks of small numbers with scales."""

    kind: str
    #: `[n, bytes of a row]` uint8.
    blocks: torch.Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs."""
        num_rows, row_bytes = self.blocks.shape
        _, block_size, block_bytes = TYPES[KEPT[self.kind].number]
        return num_rows, row_bytes // block_bytes * block_size


class SavedWeights(Mapping[str, torch.Tensor]):
    """Weights by name, each read when it is asked for, and anew when it is asked for again."""

    #: What they are like: tensors of their shapes and dtypes on the device `meta`.
    outline: Mapping[str, torch.Tensor]

    def saved_kind(self, name: str) -> str | None:
        """The type of a GGUF file that it is rounded to; `None` if it is not rounded."""
        return None

    def saved_rows(self, name: str) -> SavedRows:
        """One of a type of `KEPT`, as it is saved."""
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return name in self.outline

    def __iter__(self) -> Iterator[str]:
        return iter(self.outline)

    def __len__(self) -> int:
        return len(self.outline)


def joined(
    parts: Sequence[torch.Tensor | SavedRows],
    join: Callable[[Sequence[torch.Tensor]], torch.Tensor],
) -> torch.Tensor | SavedRows:
    """One matrix of the rows of several, which are of one type, as `join` puts them together."""
    rows = [part.blocks if isinstance(part, SavedRows) else part for part in parts]
    whole = rows[0] if len(rows) == 1 else join(rows)
    first = parts[0]
    return replace(first, blocks=whole) if isinstance(first, SavedRows) else whole


def kept_in_all(kinds: Iterable[str | None]) -> str:
    """What a model is rounded to whose weights stay rounded, e.g. `int4+int8`."""
    bits = {KEPT.get(kind, ROUNDED_ANEW).bits for kind in kinds if kind is not None}
    return "+".join(f"int{count}" for count in sorted(bits)) or "none"
