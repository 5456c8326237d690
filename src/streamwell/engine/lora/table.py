"""The adapters that an engine has loaded, by the names under which requests ask for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import torch

from streamwell.core.errors import LoadError
from streamwell.engine.folder import BROKEN
from streamwell.engine.lora.folder import Base, Pairs, read_pairs
from streamwell.engine.messages import EngineConfig

_Prepared = TypeVar("_Prepared")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A name that somebody has added."""

    #: What sequences and cache keys know the adapter by; never given twice.
    number: int
    path: str
    #: Why it could not be loaded, if it could not.
    error: str = ""


class AdapterTable(Generic[_Prepared]):
    """Loads adapters and forgets them."""

    def __init__(
        self,
        base: Base,
        prepare: Callable[[Pairs], _Prepared],
        *,
        max_loras: int,
        max_lora_rank: int,
    ) -> None:
        """`prepare` lays an adapter out for what computes the model."""
        self._base, self._prepare = base, prepare
        self._max_loras = max_loras
        #: No layer of an adapter has a higher rank.
        self.max_lora_rank = max_lora_rank
        self._entries: dict[str, _Entry] = {}
        self._prepared: dict[int, _Prepared] = {}

    def __getitem__(self, number: int) -> _Prepared:
        """The adapter of this number, which is loaded."""
        return self._prepared[number]

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
        if (count := len(self._prepared)) >= self._max_loras:
            raise LoadError(f"{count} adapters are loaded, all that --max-loras allows")
        try:
            prepared = self._prepare(read_pairs(Path(path), self._base, self.max_lora_rank))
        except BROKEN as error:
            raise LoadError(f"cannot load {path}: {error!r}") from error
        self._entries[name] = _Entry(number, path)
        self._prepared[number] = prepared

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
        self._prepared.pop(entry.number, None)
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


def adapter_table(
    config: EngineConfig, base: Base, prepare: Callable[[Pairs], _Prepared]
) -> AdapterTable[_Prepared] | None:
    """A table with the limits of the configuration; `None` if there shall be no adapters."""
    if not config.enable_lora:
        return None
    return AdapterTable(
        base, prepare, max_loras=config.max_loras, max_lora_rank=config.max_lora_rank
    )
