"""Lists of stored runs."""

from __future__ import annotations

from dataclasses import replace

from streamwell.core.conversation import Page
from streamwell.core.errors import AfterNotFound
from streamwell.core.types import RunKind, RunSpec
from streamwell.service.run_log import RunLog

_BATCH = 100
#: Runs that one request may look at before it gives up looking for more that match.
MAX_SCANNED = 10_000


async def list_runs(
    run_log: RunLog,
    tenant: str,
    kind: RunKind,
    page: Page,
    *,
    model: str = "",
    metadata: frozenset[tuple[str, str]] = frozenset(),
) -> list[RunSpec]:
    """A tenant's stored runs of one kind that have all of the metadata.

    Metadata is compared here and not in the store: few lists ask for it.

    Raises:
        AfterNotFound: the tenant has no such run `page.after`.
    """
    if page.after:
        after = await run_log.spec(page.after)
        if after is None or (after.tenant, after.kind) != (tenant, kind) or not after.terms.store:
            raise AfterNotFound
    return await _find(run_log, tenant, kind, page, model, metadata)


async def _find(
    run_log: RunLog,
    tenant: str,
    kind: RunKind,
    page: Page,
    model: str,
    metadata: frozenset[tuple[str, str]],
) -> list[RunSpec]:
    if not metadata:
        return await run_log.runs(tenant, kind, page, model=model)
    found: list[RunSpec] = []
    rest = replace(page, limit=_BATCH)
    for _ in range(MAX_SCANNED // _BATCH):
        batch = await run_log.runs(tenant, kind, rest, model=model)
        found += (spec for spec in batch if metadata <= set(spec.terms.metadata))
        if len(batch) < _BATCH or len(found) >= page.limit:
            break
        rest = replace(rest, after=batch[-1].run_id)
    return found[: page.limit]
