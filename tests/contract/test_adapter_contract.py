"""What every `Engine` promises of adapters; each test runs against every implementation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from engines import (
    Answer,
    Run,
    an_endless_request,
    ask,
    ask_until_live,
    process_engine,
    scripted_engine,
)
from tiny_llama import build_tiny_llama
from tiny_lora import a_greedy_request, build_tiny_lora

from streamwell.core.errors import EngineDied, SequenceFailed
from streamwell.core.ports import Engine
from streamwell.core.types import FinishReason, GenerateRequest


@dataclass(frozen=True, slots=True)
class Site:
    """An engine that is up, how to make more of its kind, and folders with an adapter each."""

    run: Run
    engine: Engine
    make: Callable[[], Engine]
    one: str
    other: str


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return build_tiny_lora(folder / "one", 1), build_tiny_lora(folder / "other", 2)


@pytest.fixture(
    scope="module", params=["scripted", pytest.param("process", marks=pytest.mark.slow)]
)
def site(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    folders: tuple[Path, Path],
) -> Iterator[Site]:
    make: Callable[[], Engine] = scripted_engine
    if request.param == "process":
        model = build_tiny_llama(tmp_path_factory.mktemp("model"))

        def make() -> Engine:
            return process_engine(model, enable_lora=True)

    engine = make()

    async def start() -> None:
        engine.start()
        await engine.ready()

    with asyncio.Runner() as runner:
        runner.run(start())
        yield Site(runner.run, engine, make, *map(str, folders))
        runner.run(engine.stop())


@pytest.fixture(autouse=True)
def _no_adapters(site: Site) -> Iterator[None]:
    """Each test begins and leaves without adapters."""
    yield
    for name in ("one", "other"):
        site.run(site.engine.remove_adapter(name))


def an_endless_one(adapter: str, name: str) -> GenerateRequest:
    return replace(an_endless_request(name), adapter=adapter)


def test_requests_may_name_an_adapter_that_was_added(site: Site) -> None:
    """Beside others and beside those that name none, who get what they get alone."""

    async def scenario() -> tuple[list[Answer], list[Answer]]:
        await site.engine.add_adapter("one", site.one)
        await site.engine.add_adapter("other", site.other)
        requests = [a_greedy_request(name, f"r{name}") for name in ("", "one", "other")]
        alone = [await ask(site.engine, request) for request in requests]
        return alone, await asyncio.gather(*(ask(site.engine, request) for request in requests))

    alone, crowd = site.run(scenario())

    assert [[FinishReason.LENGTH]] * 3 == [answer.reasons for answer in alone]
    assert [a.token_ids for a in alone] == [a.token_ids for a in crowd]


def test_a_request_for_no_adapter_there_is_fails_alone(site: Site) -> None:
    """It ends with `SequenceFailed` and no token; its neighbours go on."""

    async def scenario() -> list[Answer]:
        names = ("", "nobody", "")
        requests = [a_greedy_request(name, f"r{i}") for i, name in enumerate(names)]
        return await asyncio.gather(*(ask(site.engine, request) for request in requests))

    a, bad, b = site.run(scenario())

    assert isinstance(bad.error, SequenceFailed)
    assert "nobody" in str(bad.error)
    assert [] == bad.deltas
    assert [[FinishReason.LENGTH]] * 2 == [a.reasons, b.reasons]


def test_a_name_stands_for_one_folder(site: Site) -> None:
    """Adding it again is harmless, adding another one under it is not; nor is a name of nothing."""

    async def scenario() -> None:
        await site.engine.add_adapter("one", site.one)
        await asyncio.gather(*(site.engine.add_adapter("one", site.one) for _ in range(3)))
        for name, path in (("one", site.other), ("", site.one)):
            with pytest.raises(ValueError, match="name"):
                await site.engine.add_adapter(name, path)

    site.run(scenario())


def test_removing_an_adapter_ends_its_requests(site: Site) -> None:
    """Live ones end with `SequenceFailed`, later ones too; others go on, and the name is free."""

    async def scenario() -> tuple[list[Answer], Answer]:
        engine = site.engine
        await engine.add_adapter("one", site.one)
        await engine.add_adapter("other", site.other)
        lost = [await ask_until_live(engine, an_endless_one("one", f"lost{i}")) for i in range(2)]
        kept = await ask_until_live(engine, replace(an_endless_one("other", "k")))
        await engine.remove_adapter("one")
        await engine.remove_adapter("nobody")
        answers = [*await asyncio.gather(*lost), await ask(engine, a_greedy_request("one"))]
        assert not kept.done()
        kept.cancel()
        await engine.add_adapter("one", site.other)
        return answers, await ask(engine, a_greedy_request("one"))

    (*live, late), fresh = site.run(scenario())

    assert [SequenceFailed] * 3 == [type(answer.error) for answer in (*live, late)]
    assert all(answer.token_ids for answer in live)
    assert [] == late.token_ids
    assert [FinishReason.LENGTH] == fresh.reasons


def test_an_engine_that_is_not_up_takes_no_adapter(site: Site) -> None:
    """Before it is ready, and after it was stopped; there is nothing to remove either."""

    async def scenario() -> None:
        engine = site.make()
        for act in (engine.start, engine.stop):
            with pytest.raises(EngineDied):
                await engine.add_adapter("one", site.one)
            await engine.remove_adapter("one")
            if (waiting := act()) is not None:
                await waiting
        with pytest.raises(EngineDied):
            await engine.add_adapter("one", site.one)

    site.run(scenario())
