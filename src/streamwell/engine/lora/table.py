"""The adapters that an engine has loaded, by the names under which requests ask for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from streamwell.core.errors import LoadError
from streamwell.engine.folder import BROKEN
from streamwell.engine.linear import Adapted, Deltas
from streamwell.engine.lora.folder import Base, read_deltas
from streamwell.engine.sequence import Chunk
from streamwell.engine.transfer import to_device


@dataclass(frozen=True, slots=True)
class _Entry:
    """A name that somebody has added."""

    #: What sequences and cache keys know the adapter by; never given twice.
    number: int
    path: str
    #: Why it could not be loaded, if it could not.
    error: str = ""


class AdapterTable:
    """Loads adapters and forgets them; says which rows of a step they change."""

    def __init__(self, base: Base, *, max_loras: int, max_lora_rank: int) -> None:
        self._base = base
        self._max_loras = max_loras
        self._max_lora_rank = max_lora_rank
        self._entries: dict[str, _Entry] = {}
        self._deltas: dict[int, Deltas] = {}

    @torch.inference_mode()
    def add(self, number: int, name: str, path: str) -> None:
        """Load an adapter; nothing happens if it is there.

        Raises:
            LoadError: it cannot be loaded, or there are too many.
            ValueError: the name is another adapter's.
        """
        entry = self._entries.get(name)
        if entry is not None and entry.path != path:
            raise ValueError(f"the name {name!r} is that of the adapter in {entry.path}")
        if entry is not None and not entry.error:
            return
        if len(self._deltas) >= self._max_loras:
            raise LoadError(f"{len(self._deltas)} adapters are loaded, all that --max-loras allows")
        try:
            deltas = read_deltas(Path(path), self._base, self._max_lora_rank)
        except BROKEN as error:
            raise LoadError(f"cannot load {path}: {error!r}") from error
        self._entries[name] = _Entry(number, path)
        self._deltas[number] = deltas

    def restore(self, number: int, name: str, path: str) -> str | None:
        """The same for one that an engine before this one had; returns what is wrong with it now.

        Requests that name it are then refused with that; adding it again tries again.
        """
        try:
            self.add(number, name, path)
        except LoadError as error:
            self._entries[name] = _Entry(number, path, error=str(error))
            return f"the adapter {name!r} is lost: {error}"
        return None

    def remove(self, name: str) -> int | None:
        """Forget an adapter; returns its number, `None` if there was none of this name."""
        entry = self._entries.pop(name, None)
        if entry is None:
            return None
        self._deltas.pop(entry.number, None)
        return entry.number

    def number_of(self, name: str) -> int:
        """What sequences of this adapter carry; 0 is the model itself.

        Raises:
            ValueError: there is no such adapter, or it could not be loaded.
        """
        if not name:
            return 0
        entry = self._entries.get(name)
        if entry is None:
            raise ValueError(f"there is no adapter {name!r}")
        if entry.error:
            raise ValueError(f"the adapter {name!r} is lost: {entry.error}")
        return entry.number

    def adapted(self, chunks: list[Chunk]) -> Adapted | None:
        """Which rows of chunks laid end to end have adapters; `None` if no row has one."""
        if not any(chunk.seq.adapter for chunk in chunks):
            return None
        rows: dict[int, list[int]] = {}
        end = 0
        for chunk in chunks:
            start, end = end, end + chunk.num_tokens
            if chunk.seq.adapter:
                rows.setdefault(chunk.seq.adapter, []).extend(range(start, end))
        return Adapted(
            [
                (self._rows(own) if len(own) < end else None, self._deltas[number])
                for number, own in rows.items()
            ]
        )

    def _rows(self, rows: list[int]) -> torch.Tensor:
        return to_device(torch.tensor(rows, dtype=torch.int64), self._base.device)
