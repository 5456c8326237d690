"""A run while it is generated: numbers its events, counts its tokens, knows its choices.

It outlives engines, for it can be driven again at any time, and servers, for it can be made again
from its log. Who drives it, and who waits for its readers, is kept here for others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from streamwell.core.errors import StoreFailed
from streamwell.core.types import EventKind, FinishReason, RunEvent, RunSpec, Usage
from streamwell.service.generation import Finished, TextDelta, TextPipeline
from streamwell.service.served_model import Encoder


class Run:
    """A run without an end."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.num_readers = 0
        self.started_s = time.monotonic()
        #: What generates it; `None` while it is paused.
        self.task: asyncio.Task[None] | None = None
        #: The task is cancelled to be begun again later, and not to end the run.
        self.is_pausing = False
        #: The task is cancelled to end the run, whoever comes or leaves meanwhile.
        self.is_ending = False
        #: Cancels the run when no reader has come back.
        self.grace: asyncio.TimerHandle | None = None
        self.unfinished = set(range(spec.total_choices))
        #: Choices that have said something here.
        self.begun: set[int] = set()
        #: It was interrupted, so its latencies say nothing of the server.
        self.is_continued = False
        #: Seconds that it waited for a place, and until its first token; `None` if not known.
        self.queue_s: float | None = None
        self.first_token_s: float | None = None
        self.finish_reasons: set[FinishReason] = set()
        #: Why the run ends early, once that is so.
        self.error: str | None = None
        self.error_code: str | None = None
        self._pipelines: dict[int, TextPipeline] = {}
        #: By choice, the ids that the log has and no pipeline has seen.
        self._logged_ids: dict[int, list[int]] = {}
        self._next_seq = 0
        self._num_completion_tokens = 0
        self._num_cached_tokens = 0
        self._num_reasoning_tokens = 0

    @classmethod
    def from_log(cls, spec: RunSpec, events: Sequence[RunEvent]) -> Run:
        """The run as it was after its last logged event."""
        run = cls(spec)
        run.is_continued = True
        for event in events:
            run._next_seq = event.seq + 1
            run._num_completion_tokens += len(event.token_ids)
            if event.finish_reason is not None:
                run.unfinished.discard(event.index)
                run.finish_reasons.add(event.finish_reason)
            if event.usage is not None:
                run._num_cached_tokens += event.usage.cached_tokens
                run._num_reasoning_tokens += event.usage.reasoning_tokens
            run._logged_ids.setdefault(event.index, []).extend(event.token_ids)
        return run

    @property
    def is_stranded(self) -> bool:
        """It is neither generated nor waiting for a reader: its model could not be loaded."""
        return self.task is None and self.grace is None

    @property
    def is_alone(self) -> bool:
        """Nobody reads it, and it does not go on for itself."""
        return not self.num_readers and not self.spec.terms.needs_no_reader

    def pipeline(self, index: int, encoder: Encoder) -> TextPipeline:
        """The text of a choice so far; what the log had is replayed at the first call."""
        if index not in self._pipelines:
            spec = self.spec
            prompt_ids = spec.prompts[index // spec.num_choices]
            parser = encoder.answer_parser(prompt_ids, spec.part_kinds) if spec.part_kinds else None
            min_tokens = spec.sampling.min_tokens
            before = prompt_ids if spec.continues_text else ()
            pipeline = TextPipeline(encoder.decode, spec.stop, min_tokens, parser, before)
            pipeline.push(self._logged_ids.pop(index, ()))
            self._pipelines[index] = pipeline
        return self._pipelines[index]

    def start_events(self) -> list[RunEvent]:
        return [self._event(EventKind.START, index=index) for index in sorted(self.unfinished)]

    def delta(self, index: int, delta: TextDelta) -> RunEvent:
        self._num_completion_tokens += len(delta.token_ids)
        self.begun.add(index)
        return self._event(
            EventKind.DELTA,
            index=index,
            text=delta.text,
            parts=delta.parts,
            token_ids=delta.token_ids,
        )

    def finish(self, index: int, finished: Finished) -> RunEvent:
        self.unfinished.discard(index)
        self.finish_reasons.add(finished.reason)
        self._num_completion_tokens += len(finished.token_ids)
        # a prompt counts once, as its first choice saw it
        is_first = index % self.spec.num_choices == 0
        num_cached_tokens = finished.num_cached_tokens if is_first else 0
        self._num_cached_tokens += num_cached_tokens
        self._num_reasoning_tokens += finished.num_reasoning_tokens
        return self._event(
            EventKind.FINISH,
            index=index,
            finish_reason=finished.reason,
            parts=finished.parts,
            token_ids=finished.token_ids,
            usage=Usage(0, 0, num_cached_tokens, finished.num_reasoning_tokens),
        )

    def cut_short(self) -> list[RunEvent]:
        """The last words of the choices that have none: cancelled, or failed."""
        reason = FinishReason.CANCELLED if self.error is None else FinishReason.ERROR
        pipelines = {index: self._pipelines.get(index) for index in sorted(self.unfinished)}
        return [
            self.finish(index, pipeline.break_off(reason) if pipeline else Finished(reason, ()))
            for index, pipeline in pipelines.items()
        ]

    def end(self) -> RunEvent:
        return self._event(
            EventKind.END, usage=self.usage(), error=self.error, error_code=self.error_code
        )

    def break_off(self, error: str, code: str) -> None:
        self.error, self.error_code = error, code

    def lose_log(self) -> None:
        self.break_off(str(StoreFailed()), "store_failed")

    def usage(self) -> Usage:
        prompt_tokens = sum(len(prompt) for prompt in self.spec.prompts)
        return Usage(
            prompt_tokens,
            self._num_completion_tokens,
            self._num_cached_tokens,
            self._num_reasoning_tokens,
        )

    def stop_grace(self) -> None:
        if self.grace is not None:
            self.grace.cancel()
            self.grace = None

    def _event(self, kind: EventKind, **fields: object) -> RunEvent:
        seq, self._next_seq = self._next_seq, self._next_seq + 1
        return RunEvent(run_id=self.spec.run_id, seq=seq, kind=kind, **fields)  # type: ignore[arg-type]
