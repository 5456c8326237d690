"""Runs: start one, let readers come and go, cancel it, carry it over a restart.

The run's own task reads the engine and writes the log; readers read the log. When the last reader
leaves a run that does not go on for itself, the run is paused: within one step the engine works on
it no longer. It goes on when a reader comes back in time; else it is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import structlog

from streamwell.core.conversation import ConversationItem
from streamwell.core.errors import LoadError, RunElsewhere, RunNotFound, ShuttingDown, Unavailable
from streamwell.core.ids import is_id
from streamwell.core.types import RunRequest, RunSpec
from streamwell.service import run_report
from streamwell.service.acceptance import accept
from streamwell.service.admission import Admission
from streamwell.service.driver import Driver
from streamwell.service.models import ModelTable, Served
from streamwell.service.once import Once
from streamwell.service.reader import Reader
from streamwell.service.repeats import earlier_run
from streamwell.service.run import Run
from streamwell.service.run_log import RunLog
from streamwell.telemetry import Metrics

log = structlog.get_logger()

#: Runs that may wait for a reader; those beyond are cancelled as if there was no grace.
MAX_PAUSED = 1024

#: What a run that begins adds to its conversation.
ItemsOf = Callable[[RunSpec], Sequence[ConversationItem]]
#: Adds what a run that is to begin has to know: what it goes on from.
Complete = Callable[[RunRequest], Awaitable[tuple[RunRequest, ItemsOf]]]


class RunService:
    """All live runs of this server."""

    def __init__(
        self,
        models: ModelTable,
        run_log: RunLog,
        admission: Admission,
        metrics: Metrics,
        *,
        grace_s: float,
    ) -> None:
        """`grace_s` is how long a paused run waits for a reader."""
        self.log = run_log
        self._models = models
        self._admission = admission
        self._metrics = metrics
        self._grace_s = grace_s
        self._driver = Driver(run_log, metrics)
        self._live: dict[str, Run] = {}
        #: By tenant and Idempotency-Key.
        self._once = Once()
        run_log.on_broken = self._abandon

    @property
    def is_draining(self) -> bool:
        return self._admission.is_closed

    async def start(self, request: RunRequest, complete: Complete | None = None) -> Reader:
        """Accept a run and begin to generate it; returns its first reader.

        A request with an Idempotency-Key that was seen before gets a reader of that run; any other
        is completed first, and what that raises is raised. Its items are written with it.

        Raises:
            InvalidRequest, ModelNotFound: the caller's mistake.
            IdempotencyConflict: the key stands for another request.
            Unavailable: full, loading, restarting or shutting down.
        """
        key = (request.tenant, request.terms.idempotency_key)
        if not key[1]:
            return await self._start(request, complete)
        async with self._once.turn(key):
            earlier = await earlier_run(request, self.log)
            if earlier is not None:
                return await self.attach(earlier.run_id, request.tenant)
            return await self._start(request, complete)

    async def find(self, run_id: str, tenant: str) -> RunSpec:
        """Raises `RunNotFound` for an unknown run and for another tenant's."""
        live = self._live.get(run_id)
        spec = live.spec if live else await self.log.spec(run_id) if is_id(run_id) else None
        if spec is None or spec.tenant != tenant:
            raise RunNotFound
        return spec

    def live(self, tenant: str) -> list[RunSpec]:
        """A tenant's runs that this server has in hand, in the order in which they came."""
        return [run.spec for run in self._live.values() if run.spec.tenant == tenant]

    def is_paused(self, run_id: str) -> bool:
        run = self._live.get(run_id)
        return run is not None and run.task is None

    async def attach(self, run_id: str, tenant: str, after_seq: int = -1) -> Reader:
        """A reader from the event after `after_seq` on; a paused run goes on.

        Raises:
            RunNotFound: no such run, or another tenant's.
            InvalidRequest: the run has no such event yet.
        """
        spec = await self.find(run_id, tenant)
        await self.log.check_seq(run_id, after_seq)
        run = self._live.get(run_id)
        reader = Reader(self.log, spec, run, self._leave, after_seq)
        if run is not None:
            run.stop_grace()
            if run.task is None and not self.is_draining:
                self._metrics.continued.labels("reader").inc()
                self._go_on(run)
        return reader

    async def cancel(self, run_id: str, tenant: str) -> RunSpec:
        """End a run now, for all of its readers; one that has ended stays as it is.

        Raises `RunNotFound`, and `RunElsewhere` if another server drives it.
        """
        spec = await self.find(run_id, tenant)
        try:
            await self.log.check_seq(run_id, -1)
        except RunElsewhere:
            if self.is_draining:
                raise
            await self.recover(run_id)  # whoever drove it may be gone
        if (run := self._live.get(run_id)) is not None:
            self._cancel(run)
        if self.log.is_live(run_id):  # its end may be on its way to the store
            await self.log.wait_for_end(run_id)
        await self.log.check_seq(run_id, -1)
        return spec

    async def update_metadata(
        self, run_id: str, tenant: str, metadata: tuple[tuple[str, str], ...]
    ) -> RunSpec:
        """Replace what the caller noted of a run. Raises `RunNotFound`."""
        spec = await self.find(run_id, tenant)
        spec = replace(spec, terms=replace(spec.terms, metadata=metadata))
        if (run := self._live.get(run_id)) is not None:
            run.spec = spec
        await self.log.update(spec)
        return spec

    async def delete(self, run_id: str, tenant: str) -> None:
        """Delete a run, ending it if it has not ended. Raises `RunNotFound`."""
        await self.cancel(run_id, tenant)
        await self.log.delete(run_id)

    async def recover(self, run_id: str = "") -> None:
        """Go on with runs that nobody drives; they wait for their models by themselves.

        To be called now and then: servers on the same store may end, the store may have failed
        us, and a model be there that could not be loaded before. The run of this id is taken up
        whatever its model is, and ended if that is not served here. Raises `StoreFailed`.
        """
        for run in [run for run in self._live.values() if run.is_stranded]:
            if self._models.find(run.spec.model).is_ready:
                self._go_on(run)
        adopted = await self.log.adopt(self._models.wanted_names, self._live, run_id)
        for spec, events in adopted:
            run = self._live[spec.run_id] = Run.from_log(spec, events)
            if not self._models.has(spec.model):
                self._end(run)
                continue
            self._metrics.continued.labels("server").inc()
            if run.is_alone:
                self._await_reader(run)
            self._go_on(run)
        if adopted:
            log.info("runs that nobody drove go on", num_runs=len(adopted))

    async def drain(self, timeout_s: float) -> None:
        """Admit nothing more and let live runs end; what takes longer goes on another time.

        If the log does not last, it is cut.
        """
        self._admission.close()
        tasks = [run.task for run in self._live.values() if run.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)
        for run in [run for run in self._live.values() if not run.is_ending]:
            run.stop_grace()
            if self.log.is_durable:
                run.is_pausing = True
            else:
                run.is_pausing = False
                run.break_off(str(ShuttingDown()), ShuttingDown.code)
            if run.task is not None:
                run.task.cancel()
            elif not run.is_pausing:
                self._end(run)
        if tasks := [run.task for run in self._live.values() if run.task is not None]:
            await asyncio.wait(tasks)
        await asyncio.sleep(0)  # let the tasks' callbacks have their turn
        await self.log.suspend()

    async def _start(self, request: RunRequest, complete: Complete | None) -> Reader:
        request, items_of = await complete(request) if complete else (request, lambda spec: ())
        model = self._models.find(request.model)
        num_choices = len(request.prompts) * request.num_choices
        with model.in_use():
            try:
                self._admission.admit(num_choices, "n" if request.num_choices > 1 else "prompt")
                try:
                    spec = await accept(request, model)
                    self._admission.check_open()  # a drain may have begun meanwhile
                except BaseException:
                    self._admission.release(num_choices)
                    raise
            except Unavailable as error:
                self._metrics.rejected.labels(error.code).inc()
                raise
            run = self._live[spec.run_id] = Run(spec)
            self._metrics.prompt_tokens.inc(run.usage().prompt_tokens)
            self.log.create(spec, run.start_events(), items_of(spec))
            self._drive(run)
        return Reader(self.log, spec, run, self._leave)

    def _drive(self, run: Run) -> None:
        model = self._models.find(run.spec.model)
        model.hold()
        run.is_pausing = False
        run.task = asyncio.create_task(self._driver.drive(run, model), name=run.spec.run_id)
        run.task.add_done_callback(lambda task: self._settle(run, model, task))

    def _go_on(self, run: Run) -> None:
        self._admission.readmit(run.spec.total_choices)
        run.is_continued = True
        self._drive(run)

    def _settle(self, run: Run, model: Served, task: asyncio.Task[None]) -> None:
        """A run's task is over: the run has ended, or is paused."""
        model.release()
        run.task = None
        self._admission.release(run.spec.total_choices)
        if run.is_ending:
            self._end(run)
        elif not task.cancelled() and isinstance(task.exception(), LoadError):
            return  # who can load the model will go on with it: this server later, or another
        elif not (task.cancelled() and run.is_pausing):
            self._end(run)
        elif not run.is_alone and not self.is_draining:  # somebody came back meanwhile
            self._go_on(run)

    def _leave(self, run: Run, *, resumable: bool) -> None:
        """A reader is gone; alone, the run is paused, or cancelled if nobody can come back."""
        run.num_readers -= 1
        if self._live.get(run.spec.run_id) is not run or not run.is_alone or run.is_ending:
            return
        run_report.left(run, self._metrics)
        num_paused = sum(other.grace is not None for other in self._live.values())
        if not resumable or not self._grace_s or num_paused >= MAX_PAUSED:
            self._cancel(run)
            return
        self._await_reader(run)
        if run.task is not None:
            run.is_pausing = True
            run.task.cancel()

    def _await_reader(self, run: Run) -> None:
        """Cancel the run if no reader comes within the grace time; a server that ends does not."""
        run.stop_grace()
        if not self.is_draining:
            loop = asyncio.get_running_loop()
            run.grace = loop.call_later(self._grace_s, self._cancel, run)

    def _cancel(self, run: Run) -> None:
        run.stop_grace()
        run.is_pausing = False
        if run.task is not None:
            run.is_ending = True
            run.task.cancel()
        else:
            self._end(run)

    def _end(self, run: Run) -> None:
        """The last word, whatever happened: also when the task was cancelled before it began."""
        if self._live.pop(run.spec.run_id, None) is None:
            return
        run.stop_grace()
        events = run.cut_short()
        self.log.append(*events, run.end())
        run_report.ended(run, events, self._metrics)

    def _abandon(self, run_id: str) -> None:
        """Its log broke: what it would generate cannot be shown."""
        if (run := self._live.get(run_id)) is not None:
            run.lose_log()
            self._cancel(run)
