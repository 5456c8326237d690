"""The engine loop: schedule, guess, run, apply. It owns scheduler and runner, and no thread."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from streamwell.core.engine_state import EngineStats
from streamwell.core.errors import LoadError
from streamwell.core.types import FinishReason, GenerateRequest
from streamwell.engine.block_pool import BlockPool
from streamwell.engine.confidence import LEAST_CHANCE
from streamwell.engine.draft_cost import DraftCost
from streamwell.engine.drafter import Drafter
from streamwell.engine.messages import (
    Abort,
    AdapterAdded,
    Add,
    AddAdapter,
    Command,
    RemoveAdapter,
)
from streamwell.engine.pace import Pace
from streamwell.engine.scheduler import Scheduler
from streamwell.engine.sequence import Sampled, Sequence, SequenceOutput, Step
from streamwell.engine.trace import StepTrace


class Launched(Protocol):
    """`model_runner.Launched`, where it is described."""

    def wait(self) -> Mapping[str, tuple[Sampled, ...]]: ...


class Runner(Protocol):
    """Computes steps; `model_runner.ModelRunner`, or a stand-in in scheduler tests."""

    vocab_size: int

    @property
    def runs_ahead(self) -> bool: ...

    def launch(self, step: Step) -> Launched: ...

    def launch_next(self, step: Step) -> Launched: ...


class Adapters(Protocol):
    """`lora.table.AdapterTable`, where its methods are described."""

    def add(self, number: int, name: str, path: str) -> None: ...

    def remove(self, name: str) -> int | None: ...

    def number_of(self, name: str) -> int: ...


@dataclass(frozen=True, slots=True)
class _Running:
    """A step that was launched."""

    step: Step
    launched: Launched
    started_s: float


class EngineLoop:
    """Takes commands between steps, and steps."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        pool: BlockPool,
        pace: Pace | None = None,
        start_ids: tuple[int, ...] = (),
        drafter: Drafter | None = None,
        adapters: Adapters | None = None,
        draft_cost: DraftCost | None = None,
        trace: StepTrace | None = None,
    ) -> None:
        """Without a pace, prompts take what the token budget gives; guesses alike.

        With `start_ids`, a prompt is an encoder's input, and these are what a decoder begins with.
        """
        self._scheduler = scheduler
        self._runner = runner
        self._pool = pool
        self._refused: list[SequenceOutput] = []
        self._num_steps = 0
        self._pace = pace or Pace(stretch=0.0)
        self._start_ids = start_ids
        self._drafter = drafter
        self._adapters = adapters
        self._draft_cost = draft_cost
        self._trace = trace
        #: Launched already, and when the last one was there.
        self._ahead: _Running | None = None
        self._waited_s = 0.0

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work or bool(self._refused)

    def handle(self, command: Command) -> AdapterAdded | None:
        """Take one command; what is to be answered at once is returned."""
        match command:
            case Add(request):
                self._add(request)
            case Abort(request_id):
                self._scheduler.abort(request_id)
            case AddAdapter():
                return self._add_adapter(command)
            case RemoveAdapter(name):
                self._remove_adapter(name)
        return None

    def step(self) -> list[SequenceOutput]:
        """One step: what every sequence got, and the refusals since the last one.

        Where the runner can, the next one is launched before this one is waited for.
        """
        outputs, self._refused = self._refused, []
        ahead, self._ahead = self._ahead, None
        is_wanted = ahead is not None and any(not c.seq.is_over for c in ahead.step.chunks)
        running = ahead if is_wanted else self._launch()
        if running is None:
            return outputs
        self._ahead = self._launch_next(running.step)
        results = running.launched.wait()
        now = time.perf_counter()
        seconds = now - max(running.started_s, self._waited_s)
        self._waited_s = now
        step = running.step
        self._pace.observe(step.num_decodes, step.num_prefill_tokens, seconds, is_free=step.resumes)
        if self._draft_cost is not None:
            self._draft_cost.observe(step, seconds)
        if self._trace is not None:
            self._trace.write(step, self._scheduler.waiting_ids)
        outputs += self._scheduler.apply(results, step)
        self._num_steps += 1
        return outputs

    def _launch(self) -> _Running | None:
        """Plan a step and launch it, if there is anything to do."""
        least_chance = self._draft_cost.least_chance if self._draft_cost else LEAST_CHANCE
        step = self._scheduler.schedule(self._pace.prefill_limit, least_chance)
        if step is None:
            return None
        started_s = time.perf_counter()
        for chunk in step.chunks:
            if chunk.seq.queue_s is None:
                chunk.seq.queue_s = started_s - chunk.seq.added_s
        if self._drafter is not None:
            step = self._drafter.fill(step)
        return _Running(step, self._runner.launch(step), started_s)

    def _launch_next(self, step: Step) -> _Running | None:
        """Launch what follows a step whose results are still to come, if that can be."""
        if not self._runner.runs_ahead or self._drafter is not None:
            return None
        following = self._scheduler.schedule_next(step)
        if following is None:
            return None
        started_s = time.perf_counter()
        return _Running(following, self._runner.launch_next(following), started_s)

    def stats(self) -> EngineStats:
        return EngineStats(
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            num_used_blocks=self._pool.num_used,
            num_blocks=self._pool.num_blocks,
            num_preemptions=self._scheduler.num_preemptions,
            num_steps=self._num_steps,
            num_prefix_queried_tokens=self._scheduler.num_queried_tokens,
            num_prefix_hit_tokens=self._scheduler.num_hit_tokens,
            num_draft_tokens=self._scheduler.num_draft_tokens,
            num_accepted_tokens=self._scheduler.num_accepted_tokens,
        )

    def _add(self, request: GenerateRequest) -> None:
        """A request that cannot run gets its last word with the next step."""
        try:
            self._check_ids(request)
            seq = _sequence(request, self._start_ids)
            seq.added_s = time.perf_counter()
            seq.adapter = self._number_of(request.adapter)
            self._scheduler.add(seq)
        except ValueError as error:
            self._fail(request.request_id, str(error))

    def _fail(self, request_id: str, error: str) -> None:
        self._refused.append(SequenceOutput(request_id, (), FinishReason.ERROR, error))

    def _number_of(self, adapter: str) -> int:
        """What its sequences carry."""
        if self._adapters is not None:
            return self._adapters.number_of(adapter)
        if adapter:
            raise ValueError(f"there is no adapter {adapter!r}")
        return 0

    def _add_adapter(self, command: AddAdapter) -> AdapterAdded:
        if self._adapters is None:
            missing = "they need --enable-lora, and a decoder of ours"
            return AdapterAdded(command.number, f"this model takes no adapters: {missing}")
        try:
            self._adapters.add(command.number, command.name, command.path)
        except LoadError as error:
            return AdapterAdded(command.number, str(error))
        except ValueError as error:
            return AdapterAdded(command.number, str(error), is_taken=True)
        return AdapterAdded(command.number)

    def _remove_adapter(self, name: str) -> None:
        """Its sequences cannot go on: they would need what is forgotten."""
        number = self._adapters.remove(name) if self._adapters is not None else None
        if number is not None:
            for request_id in self._scheduler.requests_of(number):
                self._scheduler.abort(request_id)
                self._fail(request_id, f"the adapter {name!r} was removed")

    def _check_ids(self, request: GenerateRequest) -> None:
        """An id outside the vocabulary would fail the whole batch."""
        biased = (token_id for token_id, _ in request.sampling.logit_bias)
        stops = request.sampling.stop_token_ids
        for token_id in (*request.prompt_ids, *request.completion_ids, *biased, *stops):
            if not 0 <= token_id < self._runner.vocab_size:
                raise ValueError(f"token id {token_id} is not in the vocabulary")


def _sequence(request: GenerateRequest, start_ids: tuple[int, ...]) -> Sequence:
    prompt_ids = start_ids or request.prompt_ids
    return Sequence(
        request.request_id,
        [*prompt_ids, *request.completion_ids],
        request.sampling,
        request.priority,
        request.cache_salt,
        num_prompt_tokens=len(prompt_ids),
        encoder_ids=request.prompt_ids if start_ids else (),
    )
