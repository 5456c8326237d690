"""The engine loop: schedule, run, apply. It owns the scheduler and the runner, and no thread."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

from streamwell.core.types import EngineStats, FinishReason, GenerateRequest
from streamwell.engine.block_pool import BlockPool
from streamwell.engine.messages import Abort, Add
from streamwell.engine.pace import Pace
from streamwell.engine.scheduler import Scheduler
from streamwell.engine.sequence import Sampled, Sequence, SequenceOutput, Step


class Runner(Protocol):
    """Computes a step; `model_runner.ModelRunner`, or a stand-in in scheduler tests."""

    vocab_size: int

    def run(self, step: Step) -> Mapping[str, tuple[Sampled, ...]]: ...


class EngineLoop:
    """Takes commands between steps, and steps."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        pool: BlockPool,
        pace: Pace | None = None,
        start_ids: tuple[int, ...] = (),
    ) -> None:
        """Without a pace, prompts take what the token budget gives.

        With `start_ids`, a prompt is an encoder's input, and these are what a decoder begins with.
        """
        self._scheduler = scheduler
        self._runner = runner
        self._pool = pool
        self._refused: list[SequenceOutput] = []
        self._num_steps = 0
        self._pace = pace or Pace(stretch=0.0)
        self._start_ids = start_ids

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work or bool(self._refused)

    def handle(self, command: Add | Abort) -> None:
        """Take one command; a request that cannot run gets its last word with the next step."""
        if isinstance(command, Abort):
            self._scheduler.abort(command.request_id)
            return
        request = command.request
        try:
            self._check_ids(request)
            self._scheduler.add(_sequence(request, self._start_ids))
        except ValueError as error:
            self._refused.append(
                SequenceOutput(request.request_id, (), FinishReason.ERROR, str(error))
            )

    def step(self) -> list[SequenceOutput]:
        """One step: what every sequence got, and the refusals since the last one."""
        outputs, self._refused = self._refused, []
        step = self._scheduler.schedule(self._pace.prefill_limit)
        if step is not None:
            started = time.perf_counter()
            results = self._runner.run(step)
            seconds = time.perf_counter() - started
            self._pace.observe(step.num_decodes, step.num_prefill_tokens, seconds)
            outputs += self._scheduler.apply(results, step)
            self._num_steps += 1
        return outputs

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
