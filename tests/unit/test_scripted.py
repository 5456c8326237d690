"""The scripted engine keeps the pace that it was asked for."""

from __future__ import annotations

import asyncio
import selectors

from streamwell.backends.scripted import ScriptedEngine
from streamwell.core.types import GenerateRequest, SamplingParams

STEP_S = 0.5


class Clock(selectors.DefaultSelector):
    """What a loop would wait for is over at once, and so much later."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now_s += timeout or 0.0
        return super().select(0)


def test_a_late_token_does_not_delay_the_next() -> None:
    """Each is due at a time of its own: a consumer that is late for one catches up."""
    clock = Clock()
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now_s
    engine = ScriptedEngine(lambda _ids, _seed, _index: 1, vocab_size=8, step_s=STEP_S)
    request = GenerateRequest(
        request_id="r", prompt_ids=(1,), sampling=SamplingParams(max_tokens=6)
    )

    async def times() -> list[float]:
        engine.start()
        await engine.ready()
        times = []
        async for _delta in engine.generate(request):
            times.append(clock.now_s)
            if len(times) == 2:
                clock.now_s += 2.5 * STEP_S
        await engine.stop()
        return times

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert [0.5, 1.0, 2.25, 2.25, 2.5, 3.0] == runner.run(times())
