"""What an engine said of one request, until its consumer takes it."""

from __future__ import annotations

import asyncio

from streamwell.core.errors import EngineError
from streamwell.core.types import FinishReason, TokenDelta
from streamwell.engine.sequence import SequenceOutput


class Mailbox:
    """One request's outputs; what comes while the consumer is busy is merged."""

    def __init__(self) -> None:
        self._token_ids: list[int] = []
        self._num_cached_tokens = 0
        self._queue_s = 0.0
        self._reason: FinishReason | None = None
        self._error: EngineError | None = None
        self._arrived = asyncio.Event()

    @property
    def is_ended(self) -> bool:
        return self._reason is not None or self._error is not None

    def put(self, output: SequenceOutput | TokenDelta) -> None:
        self._token_ids.extend(output.token_ids)
        self._num_cached_tokens += output.num_cached_tokens
        self._queue_s += output.queue_s
        self._reason = output.finish_reason
        self._arrived.set()

    def fail(self, error: EngineError) -> None:
        """The first end counts."""
        if not self.is_ended:
            self._error = error
            self._arrived.set()

    async def take(self) -> TokenDelta:
        """Wait for the next tokens; tokens that came before an error come out before it."""
        await self._arrived.wait()
        if self._error is not None and not self._token_ids:
            raise self._error
        if self._error is None:
            self._arrived.clear()
        ids, num_cached_tokens = tuple(self._token_ids), self._num_cached_tokens
        delta = TokenDelta(ids, self._reason, num_cached_tokens, self._queue_s)
        self._token_ids.clear()
        self._num_cached_tokens, self._queue_s = 0, 0.0
        return delta
