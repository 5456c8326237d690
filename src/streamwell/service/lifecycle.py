"""What can be loaded and unloaded while a server runs: who wants it, and who uses it.

The latest wish counts: an unload waits for everybody who uses the thing, and a load meanwhile calls
the unload off.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

import structlog

from streamwell.core.engine_state import EngineState
from streamwell.core.errors import LoadError, NotEnoughMemory

log = structlog.get_logger()


class Phase(StrEnum):
    """What is wanted of a thing."""

    #: It is loaded, is being loaded, or could not be: the engine says which.
    LOADED = "loaded"
    #: It stays until nobody uses it any more.
    UNLOADING = "unloading"
    UNLOADED = "unloaded"


class Loadable(ABC):
    """A thing with a name that is loaded and unloaded as it is wanted."""

    def __init__(self, name: str, phase: Phase, turn: asyncio.Lock) -> None:
        """`turn` is shared by things that are loaded one after the other."""
        self.phase = phase
        #: Unloaded, it is loaded again by the next request.
        self.loads_on_request = False
        #: Why it could not be loaded the last time.
        self.error: str | None = None
        self._name = name
        self._turn = turn
        self._loading: asyncio.Task[None] | None = None
        #: A load has come to its end, good or bad.
        self._tried = asyncio.Event()
        self._num_users = 0
        self._unused = asyncio.Event()
        self._unused.set()
        #: When it was used last, in the event loop's time.
        self._used_s = 0.0

    @property
    def state(self) -> str:
        """`failed`, `unloaded`, `unloading`, or that of its engine."""
        if self.error is not None:
            return EngineState.FAILED
        return self._up_state if self.phase is Phase.LOADED else self.phase

    @property
    def is_wanted(self) -> bool:
        """It is loaded or being loaded, or would be by a request."""
        return self.phase is Phase.LOADED or self.loads_on_request

    @property
    def comes_back(self) -> bool:
        """It is not there, and the next request loads it."""
        return self.phase is not Phase.LOADED and self.loads_on_request

    def load(self) -> asyncio.Task[None]:
        """Begin to load it, unless that is under way or done; calls an unload off.

        The task goes on when nobody waits for it, so wait for it with `asyncio.shield`. It raises
        `LoadError` if it cannot be loaded.
        """
        self.phase, self.error = Phase.LOADED, None
        if self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(self._load(), name=f"load {self._name}")
            self._loading.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._loading

    async def unload(self, *, loads_on_request: bool = False) -> None:
        """Wait until nobody uses it, then give back what it holds.

        Requests are refused from now on, unless they may load it again.
        """
        self.loads_on_request = loads_on_request
        if self.phase is Phase.LOADED:
            self.phase = Phase.UNLOADING
        while self.phase is Phase.UNLOADING:
            await self._unused.wait()
            if self._loading is not None:
                await asyncio.wait([self._loading])
            async with self._turn:
                if self.phase is Phase.UNLOADING and not self._num_users:
                    await self._put_away()
                    log.info("model is unloaded", model=self._name)
                    if self.phase is Phase.UNLOADING:  # else a load meanwhile has its turn next
                        self.phase = Phase.UNLOADED

    async def unload_if_idle(self, idle_s: float) -> None:
        """Unload what nobody used for so long, until somebody does."""
        is_idle = self.phase is Phase.LOADED and self._is_up and not self._num_users
        if is_idle and asyncio.get_running_loop().time() >= self._used_s + idle_s:
            await self.unload(loads_on_request=True)

    async def stop(self) -> None:
        """The end, whoever uses it."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        await self._put_away()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Meanwhile it is not unloaded."""
        self.hold()
        try:
            yield
        finally:
            self.release()

    def hold(self) -> None:
        """One more uses it, until `release`."""
        self._num_users += 1
        self._unused.clear()

    def release(self) -> None:
        self._num_users -= 1
        self._used_s = asyncio.get_running_loop().time()
        if not self._num_users:
            self._unused.set()

    async def wake(self) -> None:
        """Load it if a request may do so. Raises `LoadError` if that fails."""
        if self.phase is Phase.UNLOADING and self.loads_on_request and self._is_up:
            self.phase = Phase.LOADED  # it need not wait for the loads of others
        if self.phase is not Phase.LOADED and self.loads_on_request:
            try:
                await asyncio.shield(self.load())
            except NotEnoughMemory:
                raise
            except LoadError:
                raise self._load_failure() from None

    def _check_loadable(self, error: str | None = None) -> None:
        """Raises `LoadError` if it could not be loaded."""
        if self.error is not None or error is not None:
            raise self._load_failure()

    def _load_failure(self) -> LoadError:
        """The reason may name places on this machine: it is for those who may see its card."""
        return LoadError(
            f"The model {self._name!r} could not be loaded; its entry in /v1/models tells "
            "who runs this server why."
        )

    async def _load(self) -> None:
        async with self._turn:
            if self._is_up:
                return
            self._tried.clear()
            try:
                await self._set_up()
                log.info("model is loaded", model=self._name)
            except BaseException as error:
                await self._put_away()
                self.phase, self.error = Phase.UNLOADED, str(error)
                raise
            finally:
                self._used_s = asyncio.get_running_loop().time()
                self._tried.set()

    @property
    @abstractmethod
    def _is_up(self) -> bool:
        """A load would find nothing to do."""

    @property
    @abstractmethod
    def _up_state(self) -> str:
        """How it is while it is wanted."""

    @abstractmethod
    async def _set_up(self) -> None:
        """Load it. Raises `LoadError` if it cannot be loaded."""

    @abstractmethod
    async def _put_away(self) -> None:
        """Give back what it holds; harmless if it holds nothing. Clears `_tried`.

        `_is_up` is false from its first moment on.
        """
