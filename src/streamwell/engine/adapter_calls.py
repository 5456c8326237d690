"""The server's side of adapters: which ones an engine shall have, and who waits for one."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from streamwell.core.errors import EngineDied, LoadError
from streamwell.engine.messages import AdapterAdded, AddAdapter, RemoveAdapter


@dataclass(slots=True)
class _Call:
    """An adapter that is being loaded."""

    command: AddAdapter
    #: `None` if the engine died first.
    answer: asyncio.Future[AdapterAdded | None]
    #: Somebody removed it before it was there.
    is_removed: bool = False


class AdapterCalls:
    """Adapters outlive an engine: the next one is told of those that were there."""

    def __init__(self, send: Callable[[AddAdapter | RemoveAdapter], None]) -> None:
        self._send = send
        #: Numbers of loads; none is given twice, to whatever process.
        self._numbers = itertools.count(1)
        self._known: dict[str, AddAdapter] = {}
        self._calls: dict[int, _Call] = {}

    @property
    def known(self) -> tuple[AddAdapter, ...]:
        """What a new engine loads before it is ready."""
        return tuple(self._known.values())

    async def add(self, name: str, path: str) -> None:
        """Ask the engine, which knows best what is there; as `core.ports.Engine` has it."""
        if not name:
            raise ValueError("the name of the adapter is empty")
        command = AddAdapter(next(self._numbers), name, path)
        answer = asyncio.get_running_loop().create_future()
        self._calls[command.number] = _Call(command, answer)
        self._send(command)
        added = await answer
        if added is None:
            raise EngineDied
        if added.error is not None:
            raise (ValueError if added.is_taken else LoadError)(added.error)

    def remove(self, name: str) -> None:
        """Tell the engine, and the next ones."""
        self._known.pop(name, None)
        for call in self._calls.values():
            call.is_removed |= call.command.name == name
        self._send(RemoveAdapter(name))

    def take(self, added: AdapterAdded) -> None:
        """The engine has answered."""
        call = self._calls.pop(added.number)
        if added.error is None and not call.is_removed:
            self._known.setdefault(call.command.name, call.command)
        if not call.answer.done():  # who asked may have left
            call.answer.set_result(added)

    def lose_engine(self) -> None:
        """Nobody will answer: the engine is gone."""
        for call in self._calls.values():
            if not call.answer.done():
                call.answer.set_result(None)
        self._calls.clear()
