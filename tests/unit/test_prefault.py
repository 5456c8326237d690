"""Memory for the cache is taken while an engine has nothing else to do, up to a limit."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import psutil
import pytest

from streamwell.engine import process
from streamwell.engine.connection import HEARTBEAT_S, Connection
from streamwell.engine.loop import EngineLoop
from streamwell.engine.native.memory import mapped, prefault

MIB = 1 << 20


def memory_of(mib: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(mapped(mib * MIB), np.uint16).reshape(-1, 16)


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


def test_memory_is_taken_up_to_a_limit() -> None:
    """Half of a mapping that nobody wrote to becomes resident, give or take a page of 2 MiB."""
    memory = memory_of(32)
    before = resident()
    assert sum(1 for _ in prefault([memory], 16 * MIB)) == 8
    assert 13 * MIB < resident() - before < 20 * MIB


def test_memories_take_turns() -> None:
    """After four steps two mappings have the same part: both begin with what is used first."""
    memories = [memory_of(8), memory_of(8)]
    steps = prefault(memories, 16 * MIB)
    before = resident()
    for _ in range(4):
        next(steps)
    taken = resident() - before
    for memory in memories:
        memory.reshape(-1)[: 2 * MIB] = 1  # 4 MiB, that are there
    assert resident() - before < taken + 2 * MIB


def test_what_is_written_stays() -> None:
    """Blocks may be in use when the rest is prepared."""
    memory = memory_of(4)
    memory[:] = np.arange(memory.size).reshape(memory.shape) % 65536
    wanted = memory.copy()
    list(prefault([memory], 4 * MIB))
    assert np.array_equal(memory, wanted)


class _Engine:
    """A connection with messages, and a loop that has work or none."""

    def __init__(self, *, has_work: bool) -> None:
        self.inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.has_work = has_work

    def use_idle_time(self, work: Iterator[None]) -> bool:
        return process._use_idle_time(cast(Connection, self), cast(EngineLoop, self), work)


def test_idle_work_ends_with_a_message() -> None:
    """An idle engine goes on until a message is there, and later from where it was."""
    engine = _Engine(has_work=False)
    steps: list[int] = []

    def work() -> Iterator[None]:
        for step in range(5):
            steps.append(step)
            if step == 2:
                engine.inbox.put("a message")
            yield

    running = work()
    assert engine.use_idle_time(running)
    assert steps == [0, 1, 2]
    engine.inbox.get_nowait()
    assert not engine.use_idle_time(running)
    assert steps == [0, 1, 2, 3, 4]


def test_a_working_engine_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server would think that it hangs: it comes back when a heartbeat is due."""
    moments = itertools.count(start=10.0, step=0.4 * HEARTBEAT_S)
    clock = SimpleNamespace(monotonic=lambda: next(moments))  # not that of other threads
    monkeypatch.setattr(process, "time", clock)
    steps = iter([None] * 5)
    assert _Engine(has_work=False).use_idle_time(steps)
    assert len(list(steps)) == 3


def test_a_busy_engine_does_no_idle_work() -> None:
    """Not while a sequence runs."""
    steps = iter([None])
    assert _Engine(has_work=True).use_idle_time(steps)
    assert list(steps) == [None]
