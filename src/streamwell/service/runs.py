"""Runs: start one, let readers follow its log, cancel it, drain them all.

The run's own task reads the engine and writes the log; readers read the log. When the last reader
leaves a run that has not ended, the run is cancelled, and so within one step the engine's work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog

from streamwell.core.errors import EngineError, ShuttingDown, Unavailable
from streamwell.core.types import EventKind, FinishReason, RunEvent, RunRequest, RunSpec, Usage
from streamwell.service.acceptance import accept, engine_request
from streamwell.service.admission import Admission
from streamwell.service.generation import Finished, TextDelta, generate_text
from streamwell.service.models import ModelTable, ServedModel
from streamwell.service.run_log import RunLog
from streamwell.telemetry import Metrics

log = structlog.get_logger()


class Run:
    """A run being generated: numbers its events and counts its tokens."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.num_readers = 0
        self.started_s = time.monotonic()
        self.task: asyncio.Task[None] | None = None
        self.unfinished = set(range(spec.total_choices))
        #: Why the run ends early, once that is so.
        self.error: str | None = None
        self.error_code: str | None = None
        self._next_seq = 0
        self._num_completion_tokens = 0
        self._num_cached_tokens = 0

    def start_events(self) -> list[RunEvent]:
        return [self._event(EventKind.START, index=index) for index in sorted(self.unfinished)]

    def delta(self, index: int, delta: TextDelta) -> RunEvent:
        self._num_completion_tokens += len(delta.token_ids)
        return self._event(EventKind.DELTA, index=index, text=delta.text, token_ids=delta.token_ids)

    def finish(self, index: int, finished: Finished) -> RunEvent:
        self.unfinished.discard(index)
        self._num_completion_tokens += len(finished.token_ids)
        if index % self.spec.num_choices == 0:  # a prompt counts once, as its first choice saw it
            self._num_cached_tokens += finished.num_cached_tokens
        return self._event(
            EventKind.FINISH,
            index=index,
            finish_reason=finished.reason,
            token_ids=finished.token_ids,
        )

    def end(self) -> RunEvent:
        return self._event(
            EventKind.END, usage=self.usage(), error=self.error, error_code=self.error_code
        )

    def break_off(self, error: str, code: str) -> None:
        self.error, self.error_code = error, code

    def usage(self) -> Usage:
        prompt_tokens = sum(len(prompt) for prompt in self.spec.prompts)
        return Usage(prompt_tokens, self._num_completion_tokens, self._num_cached_tokens)

    def _event(self, kind: EventKind, **fields: object) -> RunEvent:
        seq, self._next_seq = self._next_seq, self._next_seq + 1
        return RunEvent(run_id=self.spec.run_id, seq=seq, kind=kind, **fields)  # type: ignore[arg-type]


class Reader:
    """One follower of a run; close it exactly when it leaves (closing twice is harmless)."""

    def __init__(self, runs: RunService, run: Run) -> None:
        self._runs = runs
        self._run = run
        self._is_open = True
        run.num_readers += 1

    @property
    def spec(self) -> RunSpec:
        return self._run.spec

    def events(self) -> AsyncGenerator[list[RunEvent], None]:
        """The run's events as they are committed; see `RunLog.follow`."""
        return self._runs.log.follow(self.spec.run_id)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._runs.leave(self._run)


class RunService:
    """All live runs of this server."""

    def __init__(
        self, models: ModelTable, run_log: RunLog, admission: Admission, metrics: Metrics
    ) -> None:
        self.log = run_log
        self._models = models
        self._admission = admission
        self._metrics = metrics
        self._live: dict[str, Run] = {}

    @property
    def is_draining(self) -> bool:
        return self._admission.is_closed

    async def start(self, request: RunRequest) -> Reader:
        """Accept a run and begin to generate it; returns its first reader.

        Raises:
            InvalidRequest, ModelNotFound: the caller's mistake.
            Unavailable: full, loading, restarting or shutting down.
        """
        model = self._models.find(request.model)
        num_choices = len(request.prompts) * request.num_choices
        try:
            self._admission.admit(num_choices)
            try:
                spec = await accept(request, model)
                self._admission.check_open()  # a drain may have begun meanwhile
            except BaseException:
                self._admission.release(num_choices)
                raise
        except Unavailable as error:
            self._metrics.rejected.labels(error.code).inc()
            raise
        run = Run(spec)
        self._live[spec.run_id] = run
        self._metrics.prompt_tokens.inc(run.usage().prompt_tokens)
        self.log.create(spec, run.start_events())
        run.task = asyncio.create_task(self._drive(run, model), name=spec.run_id)
        run.task.add_done_callback(lambda _: self._end(run))
        return Reader(self, run)

    def leave(self, run: Run) -> None:
        """A reader is gone; without any, the run is cancelled."""
        run.num_readers -= 1
        if run.num_readers == 0 and run.spec.run_id in self._live and run.task is not None:
            self._metrics.disconnects.inc()
            run.task.cancel()

    async def drain(self, timeout_s: float) -> None:
        """Admit nothing more and let live runs end; cut those that take longer."""
        self._admission.close()
        tasks = [run.task for run in self._live.values() if run.task is not None]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=timeout_s)
        for run in list(self._live.values()):
            run.break_off(str(ShuttingDown()), ShuttingDown.code)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _drive(self, run: Run, model: ServedModel) -> None:
        """Generate all choices of a run."""
        try:
            async with asyncio.TaskGroup() as choices:
                for index in sorted(run.unfinished):
                    choices.create_task(self._generate(run, index, model))
        except ExceptionGroup as group:
            run.break_off(*self._explain(group))

    def _end(self, run: Run) -> None:
        """The last word, whatever happened: also when the task was cancelled before it began."""
        reason = FinishReason.CANCELLED if run.error is None else FinishReason.ERROR
        events = [run.finish(index, Finished(reason, ())) for index in sorted(run.unfinished)]
        self.log.append(*events, run.end())
        for event in events:
            self._metrics.finished.labels(str(event.finish_reason)).inc()
        self._metrics.e2e_latency_s.observe(time.monotonic() - run.started_s)
        del self._live[run.spec.run_id]
        self._admission.release(run.spec.total_choices)

    async def _generate(self, run: Run, index: int, model: ServedModel) -> None:
        encoder, info = model.require()
        request = engine_request(run.spec, index, info)
        stream = generate_text(model.engine, request, encoder.decode, run.spec.stop)
        before_s, latency = run.started_s, self._metrics.time_to_first_token_s
        async with aclosing(stream) as items:
            async for item in items:
                self._metrics.generation_tokens.inc(len(item.token_ids))
                if isinstance(item, Finished):
                    self.log.append(run.finish(index, item))
                    self._metrics.finished.labels(str(item.reason)).inc()
                    return
                self.log.append(run.delta(index, item))
                now_s = time.monotonic()
                latency.observe(now_s - before_s)
                before_s, latency = now_s, self._metrics.inter_token_latency_s

    def _explain(self, group: BaseExceptionGroup[BaseException]) -> tuple[str, str]:
        """Message and code for the caller; only errors of ours speak for themselves."""
        first = group.exceptions[0]
        if isinstance(first, EngineError | Unavailable):
            return str(first), "engine_error"
        log.error("run failed", exc_info=first)
        return "The server had an internal error.", "internal_error"
