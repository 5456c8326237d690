"""Repeated requests: what was asked under an Idempotency-Key before is not generated again."""

from __future__ import annotations

from streamwell.core.errors import IdempotencyConflict
from streamwell.core.types import FinishReason, RunRequest, RunSpec
from streamwell.service.run_log import RunLog


async def earlier_run(request: RunRequest, run_log: RunLog) -> RunSpec | None:
    """The run that this request was given before, by its key; a cancelled one is no answer.

    Raises:
        IdempotencyConflict: the key stands for another request.
    """
    earlier = await run_log.run_of_key(request.tenant, request.terms.idempotency_key)
    if earlier is None:
        return None
    if earlier.terms.fingerprint != request.terms.fingerprint:
        raise IdempotencyConflict
    events = [] if run_log.is_live(earlier.run_id) else await run_log.events(earlier.run_id)
    was_cancelled = any(event.finish_reason is FinishReason.CANCELLED for event in events)
    return None if was_cancelled else earlier
