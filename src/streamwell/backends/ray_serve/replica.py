"""The replica's side: hosts one engine, and streams its tokens to any number of gateways.

Knows nothing of Ray. A request ends when its stream is closed, and when it is aborted by its id:
Ray cancels the streams of callers that leave, but not reliably, and an abort may overtake its
request.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress

from streamwell.backends.ray_serve.messages import (
    AdapterAnswer,
    Ask,
    Failed,
    Report,
    Tokens,
    decode_ask,
    encode,
)
from streamwell.core.engine_state import EngineInfo, EngineState
from streamwell.core.errors import EngineDied, EngineError, LoadError, SequenceFailed
from streamwell.core.ports import Engine
from streamwell.engine.mailbox import Mailbox

#: Aborts that are kept for requests that have not arrived; far more than can be on their way.
MAX_EARLY_ABORTS = 4096


class Replica:
    """An engine, and the requests that it works on."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._info: EngineInfo | None = None
        self._live: dict[str, asyncio.Task[None]] = {}
        self._early_aborts: OrderedDict[str, None] = OrderedDict()
        #: How many live requests name each adapter.
        self._adapters_in_use: Counter[str] = Counter()

    @property
    def is_failed(self) -> bool:
        return self._engine.status().state is EngineState.FAILED

    async def start(self) -> None:
        """Load the model; if that fails, `report` says why."""
        self._engine.start()
        with suppress(LoadError):
            self._info = await self._engine.ready()

    async def stop(self) -> None:
        await self._engine.stop()

    async def generate(self, body: bytes) -> AsyncGenerator[bytes, None]:
        """The encoded answers to an encoded `Ask`: one per step that brought tokens.

        Those that wait while the consumer is busy are merged.
        """
        ask = decode_ask(body)
        request_id = ask.request.request_id
        if request_id in self._early_aborts:
            del self._early_aborts[request_id]
            return
        mailbox = Mailbox()
        task = self._live[request_id] = asyncio.create_task(self._run(ask, mailbox))
        # whatever ended it: a task that is cancelled before it began says nothing itself
        task.add_done_callback(lambda _: mailbox.fail(EngineDied("The request was aborted.")))
        self._adapters_in_use[ask.request.adapter] += 1
        try:
            reason = None
            while reason is None:
                delta = await mailbox.take()
                reason = delta.finish_reason
                yield encode(Tokens(delta))
        except EngineError as error:
            yield encode(Failed(str(error), isinstance(error, EngineDied)))
        finally:
            self._live.pop(request_id, None)
            self._adapters_in_use[ask.request.adapter] -= 1
            task.cancel()

    async def abort(self, request_ids: Sequence[str]) -> None:
        """End these requests within a step; unknown ones are remembered, they may be on their way.

        Of most of them another replica knows.
        """
        for request_id in request_ids:
            if (task := self._live.pop(request_id, None)) is not None:
                task.cancel()
            else:
                self._early_aborts[request_id] = None
        while len(self._early_aborts) > MAX_EARLY_ABORTS:
            self._early_aborts.popitem(last=False)

    async def report(self) -> bytes:
        """An encoded `Report`."""
        engine = self._engine
        return encode(Report(os.getpid(), engine.status(), engine.stats(), self._info))

    async def add_adapter(self, name: str, path: str) -> bytes:
        """As the engine does it; an encoded `AdapterAnswer`."""
        try:
            await self._engine.add_adapter(name, path)
        except ValueError as error:
            return encode(AdapterAnswer(str(error), is_taken=True))
        except (LoadError, EngineDied) as error:
            return encode(AdapterAnswer(str(error), has_died=isinstance(error, EngineDied)))
        return encode(AdapterAnswer())

    async def remove_adapter(self, name: str) -> None:
        """Unless it is in use: other gateways know nothing of the one that asks."""
        if not self._adapters_in_use[name]:
            await self._engine.remove_adapter(name)

    async def _until_up(self) -> None:
        """Wait for the engine, whose process may be starting anew.

        One that cannot be loaded again is waited for until Ray ends this replica: refusing at once
        would make its queue the shortest, and draw all requests here.
        """
        try:
            await self._engine.ready()
        except LoadError:
            await asyncio.Event().wait()

    async def _run(self, ask: Ask, mailbox: Mailbox) -> None:
        """Generate a request into its mailbox; ends by itself, or is cancelled."""
        try:
            await self._until_up()
            if ask.adapter_path:
                await self._engine.add_adapter(ask.request.adapter, ask.adapter_path)
            async with aclosing(self._engine.generate(ask.request)) as deltas:
                async for delta in deltas:
                    mailbox.put(delta)
        except EngineError as error:
            mailbox.fail(error)
        except LoadError as error:  # another replica may be able to
            mailbox.fail(EngineDied(str(error)))
        except ValueError as error:
            mailbox.fail(SequenceFailed(str(error)))
