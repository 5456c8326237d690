"""The models that a server has, by name; more may come while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from streamwell.core.errors import InvalidRequest, ModelNotFound
from streamwell.service.served_adapter import ServedAdapter
from streamwell.service.served_model import ServedModel

#: What a request may name.
Served = ServedModel | ServedAdapter

#: A model that can be loaded by this name, or nothing; looks at files, so it blocks.
FindModel = Callable[[str], Served | None]


def find_none(_name: str) -> None:
    """There are no models but those that are given."""


class ModelTable:
    """Finds models by name; the first one answers requests that name none."""

    def __init__(self, models: Sequence[Served], find_more: FindModel = find_none) -> None:
        self._models: list[Served] = []
        self._by_name: dict[str, Served] = {}
        self._find_more = find_more
        for model in models:
            self._add(model)

    @property
    def models(self) -> tuple[Served, ...]:
        """In the order in which they came."""
        return tuple(self._models)

    @property
    def wanted_names(self) -> list[str]:
        """Names whose runs this server would generate."""
        return [name for name, model in self._by_name.items() if model.is_wanted]

    def has(self, name: str) -> bool:
        return name in self._by_name

    def find(self, name: str) -> Served:
        """The model of this name; the empty name means the first one.

        Raises:
            ModelNotFound: no model has this name.
        """
        if not name:
            return self._models[0]
        try:
            return self._by_name[name]
        except KeyError:
            raise ModelNotFound(name, [model.names[0] for model in self._models]) from None

    async def discover(self, name: str) -> Served:
        """The model of this name, perhaps one that has been put there since the start.

        Raises:
            ModelNotFound: there is none.
        """
        if name not in self._by_name:
            self._add_unless_taken(name, await asyncio.to_thread(self._find_more, name))
        return self.find(name)

    def add_found(self, name: str) -> None:
        """Look for a model of this name, if there is none yet; blocks."""
        if name not in self._by_name:
            self._add_unless_taken(name, self._find_more(name))

    def _add_unless_taken(self, name: str, model: Served | None) -> None:
        """Another request may have found it meanwhile."""
        if model is not None and name not in self._by_name:
            self._add(model)

    def rebase(self, model: Served, base_name: str) -> None:
        """Say which model an adapter adapts.

        Raises:
            InvalidRequest: it is no adapter, or loaded with another base, or the base is one.
            ModelNotFound: there is no such base.
        """
        base = self.find(base_name)
        if not isinstance(model, ServedAdapter):
            raise InvalidRequest("only an adapter has a base", "base")
        if not isinstance(base, ServedModel):
            raise InvalidRequest("an adapter is no base", "base")
        model.rebase(base)

    def _add(self, model: Served) -> None:
        self._models.append(model)
        self._by_name |= dict.fromkeys(model.names, model)
