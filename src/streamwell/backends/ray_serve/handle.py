"""A gateway's calls to engine replicas, and to other gateways; what of Ray is met here.

Which replica gets a request is Ray's choice: the one with the shorter queue of two drawn by chance.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
import structlog
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from streamwell.backends.ray_serve.messages import (
    AdapterAnswer,
    Report,
    decode_adapter_answer,
    decode_report,
)
from streamwell.core.errors import EngineDied

log = structlog.get_logger()

#: What Ray raises when a replica, or all of them, went away.
_LOST = (RayError, RayServeException)
#: Seconds that gateways have to answer each other.
_GATEWAY_S = 10.0


class Replicas:
    """The replicas of one engine deployment."""

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        self._handle = handle
        self._streams = handle.options(stream=True)

    async def generate(self, body: bytes) -> AsyncGenerator[bytes, None]:
        """The answers of one replica to an encoded `Ask`; closing asks Ray to end the request.

        Raises:
            EngineDied: the replica went away.
        """
        response = self._streams.generate.remote(body)
        try:
            async for answer in response:
                yield answer
        except _LOST as error:
            raise EngineDied(f"{EngineDied.__doc__} ({type(error).__name__})") from error
        finally:
            response.cancel()

    async def abort(self, request_ids: Sequence[str]) -> None:
        """Tell all replicas: it is not known which of them has a request that has not answered."""
        await _tell(self._handle, "abort", list(request_ids))

    async def reports(self, timeout_s: float) -> list[Report]:
        """One of each replica that answers; none if they do not all do so in time."""
        answers = await _tell(self._handle, "report", timeout_s=timeout_s)
        try:
            return [decode_report(answer) for answer in answers]
        except msgspec.MsgspecError:  # of a replica of another version
            log.exception("a report of a replica cannot be read")
            return []

    async def add_adapter(self, name: str, path: str) -> list[AdapterAnswer]:
        return [
            decode_adapter_answer(body)
            for body in await _tell(self._handle, "add_adapter", name, path)
        ]

    async def remove_adapter(self, name: str) -> None:
        await _tell(self._handle, "remove_adapter", name)


class OtherGateways:
    """All replicas of the gateway's deployment, itself too; see `service.shared_runs`."""

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        self._handle = handle

    async def let_go(self, run_id: str) -> bool:
        return any(await _tell(self._handle, "let_go", run_id, timeout_s=_GATEWAY_S))

    async def end(self, run_id: str) -> None:
        await _tell(self._handle, "end", run_id, timeout_s=_GATEWAY_S)


async def _tell(
    handle: DeploymentHandle[Any], method: str, *args: object, timeout_s: float | None = None
) -> list[Any]:
    """What the replicas that are up answer; nothing if they do not all do so in time."""
    try:
        response = handle.broadcast(method, *args)
        answers = await response.results_async(timeout_s=timeout_s, return_exceptions=True)
    except (*_LOST, TimeoutError):
        return []
    return [answer for answer in answers if not isinstance(answer, BaseException)]
