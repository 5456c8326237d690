"""Choices that wait to begin together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from streamwell.service.gathering import Gathering

#: Longer than any test.
LONG_S = 3600.0


class Choices:
    """Tasks that wait for a place, and those that have one."""

    def __init__(self, gathering: Gathering) -> None:
        self.gathering = gathering
        self.begun: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.has_begun: dict[str, asyncio.Event] = {}
        self.ends: dict[str, asyncio.Event] = {}

    async def come(self, *names: str, at_once: bool = False) -> None:
        for name in names:
            self.has_begun[name], self.ends[name] = asyncio.Event(), asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._generate(name, at_once=at_once))
        await turns()

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self.tasks[name]

    async def leave(self, name: str) -> None:
        self.tasks[name].cancel()
        await turns()

    async def _generate(self, name: str, *, at_once: bool) -> None:
        async with self.gathering.place(at_once=at_once):
            self.begun.append(name)
            self.has_begun[name].set()
            await self.ends[name].wait()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(
    test: Callable[[Choices], Awaitable[None]], max_num_seqs: int = 3, timeout_s: float = LONG_S
) -> None:
    async def main() -> None:
        choices = Choices(Gathering(max_num_seqs, timeout_s))
        await test(choices)
        for task in choices.tasks.values():
            task.cancel()
        await asyncio.gather(*choices.tasks.values(), return_exceptions=True)

    asyncio.run(main())


def test_a_full_batch_begins() -> None:
    """Nobody before, all at the last one's coming; who comes then waits for the next batch."""

    async def test(choices: Choices) -> None:
        await choices.come("a", "b")
        assert [] == choices.begun
        await choices.come("c")
        assert {"a", "b", "c"} == set(choices.begun)
        await choices.end("a")
        await choices.end("b")
        await choices.come("d")
        assert "d" not in choices.begun
        await choices.come("e")
        assert {"d", "e"} <= set(choices.begun)

    run(test)


def test_a_wait_has_an_end() -> None:
    """The timeout counts from the one that came first."""

    async def test(choices: Choices) -> None:
        await choices.come("a", "b")
        await choices.has_begun["b"].wait()
        assert ["a", "b"] == choices.begun
        await choices.end("b")
        assert not choices.tasks["a"].done()

    run(test, timeout_s=0.01)


def test_who_leaves_holds_no_place() -> None:
    """Neither waiting nor running: the others are not taken for more than they are."""

    async def test(choices: Choices) -> None:
        await choices.come("a", "b")
        await choices.leave("a")
        await choices.come("c")
        assert [] == choices.begun
        await choices.come("d")
        assert {"b", "c", "d"} == set(choices.begun)

    run(test)


def test_who_goes_on_does_not_wait() -> None:
    """And counts among those that run."""

    async def test(choices: Choices) -> None:
        await choices.come("a", "b", at_once=True)
        assert ["a", "b"] == choices.begun
        await choices.come("c")
        assert ["a", "b", "c"] == choices.begun

    run(test)


def test_without_a_timeout_nobody_waits() -> None:
    """The default."""

    async def test(choices: Choices) -> None:
        await choices.come("a")
        assert ["a"] == choices.begun

    run(test, timeout_s=0.0)
