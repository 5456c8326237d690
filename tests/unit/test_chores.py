"""What a server does beside answering goes on, whatever happens once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streamwell.core.errors import StoreFailed
from streamwell.wiring import chores


@pytest.mark.parametrize("failure", [StoreFailed("disk full"), ValueError("a newer row")], ids=repr)
def test_runs_are_taken_up_after_a_failure(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once is no reason to leave runs lying for good."""
    monkeypatch.setattr(chores, "_RECOVERY_S", 0.0)

    class Runs:
        is_draining = False
        failures = [failure] * 2
        has_recovered = asyncio.Event()

        async def recover(self) -> None:
            if self.failures:
                raise self.failures.pop()
            self.has_recovered.set()

    async def scenario() -> None:
        runs: Any = Runs()
        recovering = asyncio.create_task(chores.recover(runs))
        await asyncio.wait_for(runs.has_recovered.wait(), 30)
        recovering.cancel()

    asyncio.run(scenario())
