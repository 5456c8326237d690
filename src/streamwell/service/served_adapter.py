"""A LoRA adapter: asked for by a name of its own like a model, computed by its base's engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from streamwell.core.engine_state import EngineInfo, EngineState
from streamwell.core.errors import EngineDied, InvalidRequest, LoadError, ModelUnloaded
from streamwell.core.ports import Engine
from streamwell.service.gathering import Gathering
from streamwell.service.lifecycle import Loadable, Phase
from streamwell.service.served_model import Encoder, ModelFacts, ServedModel

#: Engines that may die while an adapter is being loaded.
MAX_ENGINES = 5


class ServedAdapter(Loadable):
    """An adapter of a model that is served; who uses it uses its base too."""

    def __init__(
        self, name: str, base: ServedModel, facts: ModelFacts, *, is_at_start: bool = True
    ) -> None:
        """Nothing is loaded yet; `facts.path` is the adapter's folder."""
        super().__init__(name, Phase.LOADED if is_at_start else Phase.UNLOADED, asyncio.Lock())
        self.names = (name,)
        self.adapter = name
        self.base = base
        self.facts = facts
        self.created_s = int(time.time())
        self.is_at_start = is_at_start
        self._is_added = False

    def rebase(self, base: ServedModel) -> None:
        """Adapt another model from now on. Raises `InvalidRequest` while it is loaded or used."""
        if base is not self.base and (self.phase is not Phase.UNLOADED or self._num_users):
            raise InvalidRequest(f"it is loaded with the base {self.parent!r}", "base")
        self.base = base

    @property
    def engine(self) -> Engine:
        return self.base.engine

    @property
    def gathering(self) -> Gathering:
        return self.base.gathering

    @property
    def default_sampling(self) -> Mapping[str, float]:
        return self.base.default_sampling

    @property
    def comes_back(self) -> bool:
        return self.base.comes_back if self.phase is Phase.LOADED else super().comes_back

    @property
    def parent(self) -> str:
        """The name of the model that it adapts."""
        return self.base.names[0]

    @property
    def info(self) -> EngineInfo | None:
        return self.base.info if self._is_added else None

    @property
    def is_ready(self) -> bool:
        return self._is_added and self.base.is_ready

    @property
    def is_expected(self) -> bool:
        """The server is not ready without it."""
        return self.is_at_start and self.phase is Phase.LOADED and self.base.is_expected

    def hold(self) -> None:
        super().hold()
        self.base.hold()

    def release(self) -> None:
        self.base.release()
        super().release()

    async def wake(self) -> None:
        await self.base.wake()

    def require(self) -> tuple[Encoder, EngineInfo]:
        """What a request needs, now; as `ServedModel.require`."""
        self._check_loadable()
        if self.phase is not Phase.LOADED or not self._is_added:
            raise ModelUnloaded(self._name)
        return self.base.require()

    async def wait_until_up(self) -> tuple[Encoder, EngineInfo]:
        """What a run needs, once it is there; as `ServedModel.wait_until_up`."""
        await self._tried.wait()
        if not self._is_added:
            raise LoadError(self.error)
        return await self.base.wait_until_up()

    @property
    def _is_up(self) -> bool:
        """Never for certain: an engine that restarted may have lost it, so each load adds it."""
        return False

    @property
    def _up_state(self) -> str:
        state = self.base.state
        return EngineState.LOADING if state == EngineState.READY and not self._is_added else state

    async def _set_up(self) -> None:
        with self.base.in_use():
            await asyncio.shield(self.base.load())
            for _ in range(MAX_ENGINES):
                try:
                    await self.base.wait_until_up()
                    await self.engine.add_adapter(self._name, self.facts.path)
                except EngineDied:
                    continue
                except ValueError as error:
                    raise LoadError(str(error)) from error
                self._is_added = True
                return
        raise LoadError(f"engines of {self.parent!r} keep dying")

    async def stop(self) -> None:
        """The end; the engine keeps it, which goes too, or has other servers as on Ray."""
        self._is_added = False
        await super().stop()

    async def _put_away(self) -> None:
        if self._is_added:
            await self.engine.remove_adapter(self._name)
        self._is_added = False
        self._tried.clear()
