"""Tokens of one request on their way to one consumer; those that wait are merged."""

from __future__ import annotations

import asyncio

from streamwell.core.errors import EngineError
from streamwell.core.types import FinishReason, TokenDelta


class Mailbox:
    """Between a task that brings deltas and a consumer that may be busy."""

    def __init__(self) -> None:
        self._token_ids: list[int] = []
        self._num_cached_tokens = 0
        self._reason: FinishReason | None = None
        self._error: EngineError | None = None
        self._arrived = asyncio.Event()

    @property
    def is_ended(self) -> bool:
        return self._reason is not None or self._error is not None

    def put(self, delta: TokenDelta) -> None:
        self._token_ids.extend(delta.token_ids)
        self._num_cached_tokens += delta.num_cached_tokens
        self._reason = delta.finish_reason
        self._arrived.set()

    def fail(self, error: EngineError) -> None:
        """The first end counts."""
        if not self.is_ended:
            self._error = error
            self._arrived.set()

    async def take(self) -> TokenDelta:
        """Wait for the next tokens; those that came before an error come out before it."""
        await self._arrived.wait()
        if self._error is not None and not self._token_ids:
            raise self._error
        if self._error is None:
            self._arrived.clear()
        delta = TokenDelta(tuple(self._token_ids), self._reason, self._num_cached_tokens)
        self._token_ids.clear()
        self._num_cached_tokens = 0
        return delta
