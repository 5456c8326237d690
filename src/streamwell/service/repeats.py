"""Repeated requests: what was asked under an Idempotency-Key before is not generated again."""

from __future__ import annotations

from collections.abc import Iterable

from streamwell.core.errors import IdempotencyConflict
from streamwell.core.types import RunRequest, RunSpec
from streamwell.service.run_log import RunLog


async def earlier_run(
    request: RunRequest, live: Iterable[RunSpec], run_log: RunLog
) -> RunSpec | None:
    """The run that this request was given before, by its key; a cancelled one is no answer.

    `live` are the tenant's runs that may not be in the log yet.

    Raises:
        IdempotencyConflict: the key stands for another request.
    """
    tenant, key = request.tenant, request.terms.idempotency_key
    named_so = (spec for spec in live if spec.terms.idempotency_key == key)
    earlier = next(named_so, None) or await run_log.run_of_key(tenant, key)
    if earlier is None:
        return None
    if earlier.terms.fingerprint != request.terms.fingerprint:
        raise IdempotencyConflict
    return None if await run_log.was_cancelled(earlier.run_id) else earlier
