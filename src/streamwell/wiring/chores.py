"""What a server does beside answering: load, unload, recover, clean up."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence

import structlog

from streamwell.core.errors import StoreFailed
from streamwell.core.ports import Store
from streamwell.service.models import ModelTable, Served
from streamwell.service.runs import RunService
from streamwell.service.served_model import ServedModel
from streamwell.settings import Settings

log = structlog.get_logger()

_MIB = 1 << 20
_RETENTION_SWEEP_S = 60.0
_RECOVERY_S = 2.0
#: An idle model is noticed this much later at most, in seconds.
_IDLE_CHECK_S = 1.0


@contextlib.contextmanager
def _going_on(what: str) -> Iterator[None]:
    """A chore that fails is tried again the next time: nobody looks at its task until the end."""
    try:
        yield
    except StoreFailed as error:
        log.warning(what, error=str(error))
    except Exception:
        log.exception(what)


async def load_all(models: Sequence[Served]) -> None:
    """All at once: those that share cores have a lock to wait for. Raises the first `LoadError`.

    The others go on being loaded.
    """
    await asyncio.gather(*(asyncio.shield(model.load()) for model in models))


async def unload_idle(models: ModelTable, idle_s: float) -> None:
    """Unload what nobody has used for so long; 0 is for ever."""
    while idle_s:
        await asyncio.sleep(min(idle_s, _IDLE_CHECK_S))
        for model in models.models:
            if isinstance(model, ServedModel):  # adapters go with theirs
                with _going_on("an idle model could not be unloaded"):
                    await model.unload_if_idle(idle_s)


async def recover(runs: RunService) -> None:
    """Go on with what nobody drives: another server has gone, or the store had failed us."""
    while True:
        await asyncio.sleep(_RECOVERY_S)
        if not runs.is_draining:
            what = "runs that nobody drives could not be taken up"
            with _going_on(what), contextlib.suppress(StoreFailed):  # the run log has said that
                await runs.recover()


async def sweep(store: Store, settings: Settings) -> None:
    """Delete ended runs that are too old or too many, and fold the others, now and then."""
    while True:
        now_s = time.time()
        with _going_on("old runs could not be deleted or folded"):
            deleted = await store.delete_old(
                ended_before_s=now_s - 3600 * settings.retention_h,
                unstored_before_s=now_s - settings.resume_grace_s,
                stored_before_s=now_s - 3600 * settings.retention_stored_h,
            )
            deleted += await store.delete_oldest(max_bytes=settings.retention_mib * _MIB)
            # not sooner: those who may still resume a run read it from a place on
            folded = await store.fold(ended_before_s=now_s - settings.resume_grace_s)
            log.debug("old runs deleted and folded", num_deleted=deleted, num_folded=folded)
        await asyncio.sleep(_RETENTION_SWEEP_S)
