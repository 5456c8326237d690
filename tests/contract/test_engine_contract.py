"""What every `Engine` promises; each test runs against every implementation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace

import pytest
from agreement import agreement
from engines import (
    DEADLINE_S,
    MAX_MODEL_LEN,
    MAX_NUM_SEQS,
    PROCESS_ENGINES,
    VLLM_HEAD_DIM,
    VOCAB_SIZE,
    Answer,
    Rig,
    a_request,
    an_endless_request,
    ask,
    ask_until_live,
    broken_scripted_engine,
    eventually,
    process_engine,
    scripted_engine,
    vllm_engine,
)
from local_replicas import replicated
from tiny_llama import build_tiny_llama

from streamwell.core.engine_state import EngineState
from streamwell.core.errors import EngineDied, LoadError, SequenceFailed
from streamwell.core.ports import Engine
from streamwell.core.types import FinishReason, GenerateRequest, SamplingParams


@pytest.fixture(
    scope="module",
    params=[
        "scripted",
        "replicas",
        *(pytest.param(each, marks=pytest.mark.slow) for each in PROCESS_ENGINES),
    ],
)
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with asyncio.Runner() as runner:
        if request.param == "scripted":
            yield Rig(runner.run, scripted_engine, broken_scripted_engine)
            return
        if request.param == "replicas":
            yield Rig(
                runner.run,
                lambda: replicated(scripted_engine),
                lambda: replicated(broken_scripted_engine),
            )
            return
        make = vllm_engine if request.param == "vllm" else process_engine
        folder = build_tiny_llama(tmp_path_factory.mktemp("model"), VLLM_HEAD_DIM)
        broken = build_tiny_llama(tmp_path_factory.mktemp("broken"))
        (broken / "model.safetensors").unlink()
        yield Rig(runner.run, lambda: make(folder), lambda: make(broken), folder)


@pytest.fixture(scope="module")
def started(rig: Rig) -> Iterator[list[Engine]]:
    """The engines that tests of the module have shared so far."""
    engines: list[Engine] = []
    yield engines
    for engine in engines:
        rig.run(engine.stop())


@pytest.fixture
def engine(rig: Rig, started: list[Engine]) -> Engine:
    """An engine that is up: the last test's, if it has left it so. To start vLLM takes minutes."""

    async def start() -> Engine:
        engine = rig.make()
        engine.start()
        await engine.ready()
        return engine

    if not started or started[-1].status().state is not EngineState.READY:
        started.append(rig.run(start()))
    return started[-1]


async def until_idle(engine: Engine) -> None:
    """Wait until nothing runs, waits or holds a block."""
    await eventually(
        lambda: (
            (0, 0, 0)
            == (
                engine.stats().num_running,
                engine.stats().num_waiting,
                engine.stats().num_used_blocks,
            )
        )
    )


def test_a_loaded_engine_says_what_it_is(rig: Rig, engine: Engine) -> None:
    """`ready` tells the limits, as often as it is asked; the status is `READY`."""
    info = rig.run(engine.ready())

    assert (MAX_MODEL_LEN, VOCAB_SIZE) == (info.max_model_len, info.vocab_size)
    assert info == rig.run(engine.ready())
    assert EngineState.READY is engine.status().state


@pytest.mark.parametrize("max_tokens", [1, 2, 17])
def test_tokens_come_and_then_one_reason(rig: Rig, engine: Engine, max_tokens: int) -> None:
    """A request gets `max_tokens` tokens; the last delta, and no other, has a reason."""
    answer = rig.run(ask(engine, a_request("a", max_tokens)))

    assert max_tokens == len(answer.token_ids)
    assert [FinishReason.LENGTH] == answer.reasons
    assert FinishReason.LENGTH is answer.deltas[-1].finish_reason
    assert answer.error is None
    assert all(0 <= token < VOCAB_SIZE for token in answer.token_ids)
    assert all(delta.token_ids for delta in answer.deltas)


def test_the_context_ends_a_request(rig: Rig, engine: Engine) -> None:
    """Prompt and completion together fill the model's context and no more."""
    request = a_request("a", 99, prompt_ids=(5,) * (MAX_MODEL_LEN - 3))
    answer = rig.run(ask(engine, request))

    assert (3, [FinishReason.LENGTH]) == (len(answer.token_ids), answer.reasons)


def test_a_prompt_that_came_before_gives_the_same(rig: Rig, engine: Engine) -> None:
    """An engine may use what it computed before; it tells how much, once, and nothing changes."""

    async def scenario() -> list[Answer]:
        request = a_request("a", 5, tuple(range(5, 55)), temperature=0.0)
        return [await ask(engine, request) for _ in range(3)]

    first, *again = rig.run(scenario())

    for answer in again:
        assert first.token_ids == answer.token_ids
        assert 0 <= answer.deltas[0].num_cached_tokens < 50
        assert {0} >= {delta.num_cached_tokens for delta in answer.deltas[1:]}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_tokens_are_the_same_alone_and_in_a_crowd(
    rig: Rig, engine: Engine, temperature: float
) -> None:
    """Many concurrent requests each get what they get alone, more of them than there are places."""

    def request(i: int) -> GenerateRequest:
        prompt = tuple(range(5, 6 + i))
        return a_request(f"r{i}", 3 + i % 7, prompt, temperature=temperature, seed=i)

    async def scenario() -> tuple[list[Answer], list[Answer]]:
        alone = [await ask(engine, request(i)) for i in range(5 * MAX_NUM_SEQS)]
        crowd = await asyncio.gather(*(ask(engine, request(i)) for i in range(5 * MAX_NUM_SEQS)))
        await until_idle(engine)
        return alone, crowd

    alone, crowd = rig.run(scenario())

    assert [3 + i % 7 for i in range(5 * MAX_NUM_SEQS)] == [len(a.token_ids) for a in alone]
    assert [a.token_ids for a in alone] == [a.token_ids for a in crowd]
    assert [[FinishReason.LENGTH]] * len(crowd) == [a.reasons for a in crowd]


@pytest.mark.parametrize(
    "params",
    [
        pytest.param({}, id="greedy"),
        pytest.param({"frequency_penalty": 0.5}, id="held back by how often"),
        pytest.param({"repetition_penalty": 1.3}, id="held back by repetition"),
    ],
)
def test_a_request_goes_on_after_what_it_said(
    rig: Rig, engine: Engine, params: dict[str, float]
) -> None:
    """Given the ids that it has already, it says the others and ends where it would have ended."""
    request = a_request("a", 24, temperature=0.0, **params)

    async def scenario() -> tuple[Answer, list[Answer]]:
        whole = await ask(engine, request)
        ids = tuple(whole.token_ids)
        return whole, [
            await ask(engine, replace(request, completion_ids=ids[:count])) for count in (1, 9, 23)
        ]

    whole, rests = rig.run(scenario())

    assert [whole.token_ids[count:] for count in (1, 9, 23)] == [a.token_ids for a in rests]
    assert [[FinishReason.LENGTH]] * 3 == [answer.reasons for answer in rests]


def test_bounds_count_what_was_said_before(rig: Rig, engine: Engine) -> None:
    """`min_tokens` and the context are those of the whole request, whenever it goes on."""
    short = GenerateRequest(
        request_id="a",
        prompt_ids=(5, 6, 7),
        sampling=SamplingParams(max_tokens=9, min_tokens=9, stop_token_ids=tuple(range(32))),
        completion_ids=(8,) * 8,
    )
    full = replace(
        a_request("b", MAX_MODEL_LEN, prompt_ids=(5,) * 9),
        completion_ids=(6,) * (MAX_MODEL_LEN - 11),
    )
    one, two = rig.run(_both(ask(engine, short), ask(engine, full)))

    assert (1, 2) == (len(one.token_ids), len(two.token_ids))
    assert [FinishReason.LENGTH] == two.reasons


async def _both(one: Awaitable[Answer], two: Awaitable[Answer]) -> tuple[Answer, Answer]:
    return await one, await two


def test_greedy_tokens_are_those_of_transformers(
    rig: Rig, engine: Engine, summary: Callable[..., None]
) -> None:
    """In float32, 99 of 100 at the least; the others are as good as the best, but for rounding."""
    if rig.folder is None:
        pytest.skip("this engine has no model")
    prompts = [tuple(3 + (7 * i + j * j) % 61 for j in range(1 + 4 * i)) for i in range(16)]

    async def scenario() -> list[Answer]:
        requests = [a_request(f"r{i}", 32, p, temperature=0.0) for i, p in enumerate(prompts)]
        return await asyncio.gather(*(ask(engine, request) for request in requests))

    answers = [answer.token_ids for answer in rig.run(scenario())]
    found = agreement(rig.folder, list(zip(prompts, answers, strict=True)))

    summary(f"{found.num_tokens - len(found.margins)} of {found.num_tokens} tokens equal")
    assert 16 * 32 == found.num_tokens
    assert found.share >= 0.99
    assert max(found.margins, default=0.0) < 1e-3


def test_closing_the_generator_aborts_the_request(rig: Rig, engine: Engine) -> None:
    """The one who listens holds the lease: when he leaves, the request and its blocks go."""

    async def scenario() -> int:
        before = engine.stats().num_steps
        async with aclosing(engine.generate(an_endless_request("a"))) as deltas:
            await anext(deltas)
            await eventually(lambda: engine.stats().num_used_blocks > 0)
        await until_idle(engine)
        return engine.stats().num_steps - before

    assert rig.run(scenario()) < MAX_MODEL_LEN - 3


def test_cancelling_the_consumer_aborts_the_request(rig: Rig, engine: Engine) -> None:
    """A task that is cancelled while it waits for a token leaves nothing behind either."""

    async def scenario() -> None:
        task = await ask_until_live(engine, an_endless_request("a"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_idle(engine)

    rig.run(scenario())


def test_a_request_that_waits_can_leave(rig: Rig, engine: Engine) -> None:
    """A consumer may leave before its request got a place; the places stay as they were."""

    async def scenario() -> Answer:
        busy = [
            await ask_until_live(engine, an_endless_request(f"busy{i}"))
            for i in range(MAX_NUM_SEQS)
        ]
        waiting = asyncio.create_task(ask(engine, a_request("waits")))
        await eventually(lambda: engine.stats().num_waiting == 1)
        for task in (waiting, *busy):
            task.cancel()
        await asyncio.wait({waiting, *busy})
        await until_idle(engine)
        return await ask(engine, a_request("next"))

    assert [FinishReason.LENGTH] == rig.run(scenario()).reasons


@pytest.mark.parametrize(
    "prompt_ids",
    [
        pytest.param((5, VOCAB_SIZE), id="an id over the vocabulary"),
        pytest.param((-1,), id="a negative id"),
        pytest.param((), id="no token at all"),
        pytest.param((5,) * MAX_MODEL_LEN, id="longer than the context"),
    ],
)
def test_a_request_that_cannot_run_fails_alone(
    rig: Rig, engine: Engine, prompt_ids: tuple[int, ...]
) -> None:
    """It ends with `SequenceFailed` and no token; its neighbours go on."""

    async def scenario() -> list[Answer]:
        requests = [a_request("a"), a_request("bad", prompt_ids=prompt_ids), a_request("b")]
        return await asyncio.gather(*(ask(engine, request) for request in requests))

    a, bad, b = rig.run(scenario())

    assert isinstance(bad.error, SequenceFailed)
    assert [] == bad.deltas
    assert [[FinishReason.LENGTH]] * 2 == [a.reasons, b.reasons]


def test_an_engine_that_is_not_up_takes_no_request(rig: Rig) -> None:
    """Before it is ready, and after it was stopped, a request raises `EngineDied`."""

    async def scenario() -> list[Answer]:
        engine = rig.make()
        answers = [await ask(engine, a_request("before start"))]
        engine.start()
        answers.append(await ask(engine, a_request("before ready")))
        await engine.stop()
        answers.append(await ask(engine, a_request("after stop")))
        assert EngineState.STOPPED is engine.status().state
        return answers

    for answer in rig.run(scenario()):
        assert isinstance(answer.error, EngineDied)
        assert [] == answer.deltas


def test_a_wait_for_an_engine_that_is_stopped_ends(rig: Rig) -> None:
    """Whoever awaits `ready` when the engine is stopped gets `EngineDied`, not a cancellation."""

    async def scenario() -> None:
        engine = rig.make()
        engine.start()
        waiting = asyncio.create_task(engine.ready())
        await engine.stop()
        with pytest.raises(EngineDied):
            await asyncio.wait_for(waiting, DEADLINE_S)

    rig.run(scenario())


def test_a_model_that_cannot_be_loaded_is_an_error_of_ready(rig: Rig) -> None:
    """`ready` raises `LoadError`, each time; the status is `FAILED` and says why."""

    async def scenario() -> Engine:
        engine = rig.make_broken()
        engine.start()
        for _ in range(2):
            with pytest.raises(LoadError):
                await engine.ready()
        return engine

    engine = rig.run(scenario())

    status = engine.status()
    rig.run(engine.stop())
    assert EngineState.FAILED is status.state
    assert status.error


def test_stop_ends_live_requests(rig: Rig, engine: Engine) -> None:
    """Those that run and those that wait end with `EngineDied`, after the tokens they got."""

    async def scenario() -> list[Answer]:
        tasks = [
            await ask_until_live(engine, an_endless_request(f"r{i}")) for i in range(MAX_NUM_SEQS)
        ]
        tasks.append(asyncio.create_task(ask(engine, a_request("waits"))))
        await eventually(lambda: engine.stats().num_waiting == 1)
        await engine.stop()
        return await asyncio.gather(*tasks)

    *ran, waited = rig.run(scenario())

    assert [EngineDied] * (MAX_NUM_SEQS + 1) == [type(a.error) for a in (*ran, waited)]
    assert all(answer.token_ids for answer in ran)
    assert ([], []) == (waited.token_ids, ran[0].reasons)
