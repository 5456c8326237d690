"""Generates the choices of a run, through as many engines as it takes.

An engine that dies costs a pause: the supervisor starts another, and each choice goes on after the
ids that it has. A choice that makes no progress through several deaths is taken for their cause.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial

import structlog

from streamwell.core.errors import EngineDied, EngineError, LoadError, Unavailable
from streamwell.service import run_report
from streamwell.service.acceptance import engine_request
from streamwell.service.generation import Finished, TextDelta, generate_text
from streamwell.service.models import Served
from streamwell.service.run import Run
from streamwell.service.run_log import RunLog
from streamwell.telemetry import Metrics

log = structlog.get_logger()

#: Engines that a choice may see die without a token of its own in between.
MAX_DEATHS = 5


class Driver:
    """Generates runs of one server into its log."""

    def __init__(self, run_log: RunLog, metrics: Metrics) -> None:
        self._log = run_log
        self._metrics = metrics
        self._attempts = itertools.count()

    async def drive(self, run: Run, model: Served) -> None:
        """Generate all choices that have no end yet.

        Raises:
            LoadError: the model cannot be loaded now; the run may go on another time.
        """
        try:
            async with asyncio.TaskGroup() as choices:
                for index in sorted(run.unfinished):
                    choices.create_task(self._generate(run, index, model))
        except* LoadError as group:
            raise group.exceptions[0] from None
        except* Exception as group:  # noqa: BLE001 - the rim of the task
            run.break_off(*_explain(group))

    async def _generate(self, run: Run, index: int, model: Served) -> None:
        """One choice to its end."""
        num_deaths = num_tokens = 0
        at_once = run.is_continued  # it has waited for others before
        while True:
            encoder, info = await model.wait_until_up()
            pipeline = run.pipeline(index, encoder)
            if len(pipeline.token_ids) > num_tokens:
                num_deaths, num_tokens = 0, len(pipeline.token_ids)
            request = engine_request(run.spec, index, info)
            # A name of its own: tokens of an attempt that was closed may still be on their way.
            name = f"{request.request_id}/{next(self._attempts)}"
            request = replace(request, request_id=name, adapter=model.adapter)
            try:
                async with model.gathering.place(at_once=at_once):
                    sent_s = time.monotonic() - run.started_s
                    began = partial(run_report.began, run, sent_s)
                    items = generate_text(model.engine, request, pipeline, began)
                    async with aclosing(items):
                        await self._write(run, index, items)
            except EngineDied:
                at_once = True
                num_deaths += len(pipeline.token_ids) == num_tokens
                if num_deaths == MAX_DEATHS:
                    raise
                self._metrics.continued.labels("engine").inc()
            else:
                return

    async def _write(
        self, run: Run, index: int, items: AsyncIterator[TextDelta | Finished]
    ) -> None:
        before_s, latency = run.started_s, self._metrics.time_to_first_token_s
        if run.is_continued or index in run.begun:
            before_s, latency = time.monotonic(), self._metrics.inter_token_latency_s
        async for item in items:
            self._metrics.generation_tokens.inc(len(item.token_ids))
            if isinstance(item, Finished):
                self._log.append(run.finish(index, item))
                self._metrics.finished.labels(str(item.reason)).inc()
                return
            self._log.append(run.delta(index, item))
            now_s = time.monotonic()
            latency.observe(now_s - before_s)
            before_s, latency = now_s, self._metrics.inter_token_latency_s


def _explain(group: BaseExceptionGroup[BaseException]) -> tuple[str, str]:
    """Message and code for the caller; only errors of ours speak for themselves."""
    first = group.exceptions[0]
    if isinstance(first, EngineError | Unavailable):
        return str(first), "engine_error"
    log.error("run failed", exc_info=first)
    return "The server had an internal error.", "internal_error"
