"""Replicas without Ray, in this process: what they say is encoded as it is for Ray."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from streamwell.backends.ray_serve.engine import RayServeEngine
from streamwell.backends.ray_serve.messages import (
    AdapterAnswer,
    Report,
    decode_adapter_answer,
    decode_report,
)
from streamwell.backends.ray_serve.replica import Replica
from streamwell.core.errors import EngineDied
from streamwell.core.ports import Engine

REPORT_S = 0.01


class LocalReplicas:
    """Some replicas; each request goes to the next one. They start with the first look."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.replicas = [Replica(engine) for engine in engines]
        self._num_requests = 0
        self.num_looks = 0
        self._is_started = False

    async def generate(self, body: bytes) -> AsyncGenerator[bytes, None]:
        if not self.replicas:
            raise EngineDied
        self._num_requests += 1
        replica = self.replicas[self._num_requests % len(self.replicas)]
        async with aclosing(replica.generate(body)) as answers:
            async for answer in answers:
                yield answer
                if replica not in self.replicas:
                    raise EngineDied

    async def abort(self, request_ids: Sequence[str]) -> None:
        for replica in self.replicas:
            await replica.abort(request_ids)

    async def reports(self, timeout_s: float) -> list[Report]:
        self.num_looks += 1
        if not self._is_started:
            self._is_started = True
            for replica in self.replicas:
                await replica.start()
        return [decode_report(await replica.report()) for replica in self.replicas]

    async def add_adapter(self, name: str, path: str) -> list[AdapterAnswer]:
        answers = [await replica.add_adapter(name, path) for replica in self.replicas]
        return [decode_adapter_answer(answer) for answer in answers]

    async def remove_adapter(self, name: str) -> None:
        for replica in self.replicas:
            await replica.remove_adapter(name)


def replicated(make: Callable[[], Engine], num_replicas: int = 1) -> RayServeEngine:
    """A gateway's engine over new replicas."""
    replicas = LocalReplicas([make() for _ in range(num_replicas)])
    return RayServeEngine(replicas, report_s=REPORT_S, patience_s=0)
