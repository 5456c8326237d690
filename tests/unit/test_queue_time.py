"""The engine tells how long a request waited for its first step."""

from __future__ import annotations

import asyncio
from itertools import count
from types import SimpleNamespace

import pytest
from scheduler_bench import Bench, Runner

from streamwell.core.types import GenerateRequest, SamplingParams
from streamwell.engine import loop as engine_loop
from streamwell.engine.loop import EngineLoop
from streamwell.engine.mailbox import Mailbox
from streamwell.engine.messages import Add
from streamwell.engine.sequence import SequenceOutput


@pytest.fixture(autouse=True)
def _a_second_passes_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop looks at a clock that only its looks move on."""
    clock = map(float, count())
    monkeypatch.setattr(engine_loop, "time", SimpleNamespace(perf_counter=lambda: next(clock)))


def outputs_of_two() -> dict[str, list[SequenceOutput]]:
    """Two requests that came together and share one place."""
    bench = Bench(max_num_seqs=1)
    loop = EngineLoop(bench.scheduler, Runner(), bench.pool)
    for name in ("first", "second"):
        sampling = SamplingParams(max_tokens=3)
        loop.handle(Add(GenerateRequest(request_id=name, prompt_ids=(1, 2), sampling=sampling)))
    outputs: dict[str, list[SequenceOutput]] = {"first": [], "second": []}
    while loop.has_work:
        for output in loop.step():
            outputs[output.request_id].append(output)
    return outputs


def test_who_comes_second_has_waited_longer() -> None:
    """It is told once, with the first tokens."""
    outputs = outputs_of_two()

    assert outputs["first"][0].queue_s == 2.0
    assert outputs["second"][0].queue_s == 7.0  # after three steps, each with two looks
    assert [0.0] * 4 == [output.queue_s for seq in outputs.values() for output in seq[1:]]


async def _taken(outputs: list[SequenceOutput]) -> list[float]:
    mailbox, waits = Mailbox(), []
    for output in outputs:
        mailbox.put(output)
        waits.append((await mailbox.take()).queue_s)
    return waits


def test_the_consumer_hears_it_once() -> None:
    """Merged with later tokens or not."""
    second = outputs_of_two()["second"]

    assert [second[0].queue_s, 0.0, 0.0] == asyncio.run(_taken(second))
