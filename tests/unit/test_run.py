"""A run, and the same run made again from its log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from sqlite_rig import a_run

from streamwell.core.types import FinishReason, RunEvent, Usage
from streamwell.service.generation import Finished, TextDelta
from streamwell.service.run import Run

SPEC = replace(a_run("r"), num_choices=2)


class Bytes:
    """A tokenizer whose ids are bytes."""

    has_chat_template = False
    vocab_size = 256

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode(errors="replace")


def test_what_was_generated_counts_though_it_was_cut() -> None:
    """Also tokens whose text is held back, and what was found in the cache."""
    run = Run(SPEC)
    run.start_events()
    pipeline = run.pipeline(0, Bytes())  # type: ignore[arg-type]
    delta = pipeline.push((97, 0xC3), num_cached_tokens=2)
    assert delta is not None
    run.delta(0, delta)
    pipeline.push((0xC3,))
    run.cut_short()

    assert (3, 2) == (run.usage().completion_tokens, run.usage().cached_tokens)


@pytest.mark.parametrize("num_logged", range(2, 7))
def test_usage_outlives_a_restart(num_logged: int) -> None:
    """Whatever was logged before it: cached tokens count once, reasoning once for each choice."""

    def say(run: Run, num_before: int) -> list[RunEvent]:
        """The events after the first two, from one of them on."""
        makers = [
            lambda: run.delta(0, TextDelta("a", (1,))),
            lambda: run.finish(0, Finished(FinishReason.STOP, (2,), 2, 1)),
            lambda: run.delta(1, TextDelta("b", (3,))),
            lambda: run.finish(1, Finished(FinishReason.LENGTH, (), 3, 5)),
        ]
        return [make() for make in makers[num_before - 2 :]]

    first = Run(SPEC)
    events = [*first.start_events(), *say(first, 2)]
    again = Run.from_log(SPEC, events[:num_logged])
    rest = say(again, num_logged)

    assert Usage(3, 3, 2, 6) == first.usage()
    assert events[num_logged:] == rest
    assert first.end() == again.end()
