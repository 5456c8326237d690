"""Runs the application under uvicorn, and drains it when it is asked to stop.

The first signal closes admission and lets live runs end, up to the drain time; new requests get
503 meanwhile. A second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import FrameType

import structlog
import uvicorn
from starlette.types import ASGIApp

log = structlog.get_logger()

#: What is left to do after the drain is to write last events to sockets.
_CLOSE_TIMEOUT_S = 5


class DrainingServer(uvicorn.Server):
    """A uvicorn server whose first signal drains."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._drain = drain
        self._draining: asyncio.Task[None] | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        self._event_loop = asyncio.get_running_loop()
        await super().startup(sockets)  # type: ignore[arg-type]  # passed on as it came

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._draining is None and self._event_loop is not None:
            self._event_loop.call_soon_threadsafe(self._begin_drain)
        else:
            # uvicorn would print a traceback for every request that this cuts
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
            self.force_exit = self.should_exit = True

    def exit_now(self) -> None:
        """Stop without draining."""
        self.should_exit = True

    def _begin_drain(self) -> None:
        if self._draining is None:
            log.info("draining; a second signal stops at once")
            self._draining = asyncio.create_task(self._drain_then_exit())

    async def _drain_then_exit(self) -> None:
        try:
            await self._drain()
        finally:
            self.should_exit = True


def make_server(
    app: ASGIApp,
    *,
    drain: Callable[[], Awaitable[None]],
) -> DrainingServer:
    """A server ready to `serve()` on a listening socket, before any model is loaded."""
    config = uvicorn.Config(
        app,
        # h11 bounds the size of headers, httptools does not (docs/decisions/0006)
        http="h11",
        h11_max_incomplete_event_size=16 * 1024,
        ws="none",
        loop="auto",
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=_CLOSE_TIMEOUT_S,
    )
    return DrainingServer(config, drain)
