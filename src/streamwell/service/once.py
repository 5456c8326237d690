"""Requests of one name, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class Once:
    """Gives each key to one task at a time; keys nobody asks for take no memory."""

    def __init__(self) -> None:
        self._taken: dict[Hashable, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def turn(self, key: Hashable) -> AsyncIterator[None]:
        """Wait for the key, and hold it."""
        while (taken := self._taken.get(key)) is not None:
            await asyncio.wait([taken])
        mine = self._taken[key] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._taken[key]
            mine.set_result(None)
