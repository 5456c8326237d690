"""Steps that are launched before the ones that they follow have brought their tokens."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import pytest

from streamwell.core.types import FinishReason, GenerateRequest, SamplingParams
from streamwell.engine.block_pool import BlockPool
from streamwell.engine.loop import EngineLoop
from streamwell.engine.messages import Abort, Add
from streamwell.engine.pace import Pace
from streamwell.engine.scheduler import Scheduler
from streamwell.engine.sequence import Chunk, Sampled, Step
from streamwell.engine.trace import StepTrace

VOCAB_SIZE, BLOCK_SIZE, MAX_MODEL_LEN, EOS = 50, 4, 40, 0


@dataclass
class Device:
    """Computes tokens from what its cache holds at the places that a chunk names, in order."""

    runs_ahead: bool
    vocab_size: int = VOCAB_SIZE
    #: Token ids by slot, as keys and values would be.
    cache: dict[int, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    num_ahead: int = 0
    num_launched: int = 0
    num_waited: int = 0

    def launch(self, step: Step) -> Launched:
        return self._compute({chunk: chunk.token_ids for chunk in step.chunks})

    def launch_next(self, step: Step) -> Launched:
        self.num_ahead += 1
        return self._compute({c: [self.last[c.seq.request_id]] for c in step.chunks})

    def _compute(self, chunks: Mapping[Chunk, list[int]]) -> Launched:
        self.num_launched += 1
        for chunk, token_ids in chunks.items():
            for place, token_id in enumerate(token_ids, chunk.start):
                self.cache[self._slot(chunk, place)] = token_id
        results = {c.seq.request_id: self._next(c) for c in chunks if c.is_sampled}
        self.last = dict(results)
        return Launched(self, {name: (Sampled(token),) for name, token in results.items()})

    def _next(self, chunk: Chunk) -> int:
        read = [self.cache[self._slot(chunk, place)] for place in range(chunk.end)]
        return hashlib.sha256(bytes(read)).digest()[0] % VOCAB_SIZE

    @staticmethod
    def _slot(chunk: Chunk, place: int) -> int:
        return chunk.seq.block_ids[place // BLOCK_SIZE] * BLOCK_SIZE + place % BLOCK_SIZE


@dataclass
class Launched:
    """What a step brings; the device counts who waits for it."""

    device: Device
    results: dict[str, tuple[Sampled, ...]]

    def wait(self) -> dict[str, tuple[Sampled, ...]]:
        self.device.num_waited += 1
        return self.results


class Engine:
    """A loop over a device, and what it said."""

    def __init__(
        self,
        *,
        runs_ahead: bool,
        num_blocks: int = 64,
        max_num_seqs: int = 4,
        pace: Pace | None = None,
        trace: StepTrace | None = None,
    ) -> None:
        self.device = Device(runs_ahead)
        pool = BlockPool(num_blocks, BLOCK_SIZE)
        self.scheduler = Scheduler(
            pool,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=16,
            max_model_len=MAX_MODEL_LEN,
            eos_token_ids=frozenset({EOS}),
        )
        self.loop = EngineLoop(self.scheduler, self.device, pool, pace, trace=trace)
        self.tokens: dict[str, list[int]] = {}
        self.reasons: dict[str, FinishReason | None] = {}

    def add(self, request: GenerateRequest) -> None:
        self.loop.handle(Add(request))
        self.tokens[request.request_id] = []

    def step(self) -> None:
        for output in self.loop.step():
            assert output.error is None
            assert output.request_id not in self.reasons, "it had ended"
            self.tokens[output.request_id] += output.token_ids
            if output.finish_reason is not None:
                self.reasons[output.request_id] = output.finish_reason
        self.scheduler.check_integrity()

    def run(self) -> None:
        while self.loop.has_work:
            self.step()


def request(name: str, prompt: tuple[int, ...] = (1, 2, 3), **params: object) -> GenerateRequest:
    sampling = SamplingParams(**{"max_tokens": 12, "temperature": 0.0, **params})  # type: ignore[arg-type]
    return GenerateRequest(request_id=name, prompt_ids=prompt, sampling=sampling)


def some_requests(rng: Random, count: int) -> list[GenerateRequest]:
    """Some end by length, others by a token that nobody foresees; half begin alike."""
    shared = tuple(rng.randrange(1, VOCAB_SIZE) for _ in range(9))
    requests = []
    for number in range(count):
        own = tuple(rng.randrange(1, VOCAB_SIZE) for _ in range(rng.randint(1, 12)))
        stops = tuple(rng.randrange(VOCAB_SIZE) for _ in range(rng.choice([0, 3])))
        requests.append(
            request(
                str(number),
                (*shared, *own) if number % 2 else own,
                max_tokens=rng.randint(1, 30),
                stop_token_ids=stops,
                repetition_penalty=1.1 if rng.random() < 0.05 else 1.0,
            )
        )
    return requests


@pytest.mark.parametrize("seed", range(20))
def test_tokens_are_those_of_one_step_after_the_other(seed: int) -> None:
    """Whoever comes, ends or is aborted meanwhile, in a cache that is too small for all."""
    rng = Random(seed)
    requests = some_requests(rng, 24)
    plain = Engine(runs_ahead=False)
    for one in requests:
        plain.add(one)
    plain.run()
    ahead = Engine(runs_ahead=True, num_blocks=rng.randint(12, 30))
    aborted, todo = set(), list(requests)
    while todo or ahead.loop.has_work:
        if todo and rng.random() < 0.3:
            ahead.add(todo.pop(0))
        running = [
            name for name in ahead.tokens if name not in ahead.reasons | dict.fromkeys(aborted)
        ]
        if running and rng.random() < 0.03:
            aborted.add(gone := rng.choice(running))
            ahead.loop.handle(Abort(gone))
        ahead.step()

    assert ahead.device.num_ahead > 5
    for name, tokens in plain.tokens.items():
        if name in aborted:
            assert tokens[: len(ahead.tokens[name])] == ahead.tokens[name]
        else:
            assert tokens == ahead.tokens[name]
            assert plain.reasons[name] == ahead.reasons[name]


def test_the_next_step_is_launched_before_this_one_is_waited_for() -> None:
    """So the device always has something to do, but for the last token."""
    engine = Engine(runs_ahead=True)
    engine.add(request("a", max_tokens=5, ignore_eos=True))

    launched = []
    while engine.loop.has_work:
        engine.step()
        launched.append(engine.device.num_launched - engine.device.num_waited)

    assert [1, 1, 1, 1, 0] == launched
    assert 5 == engine.device.num_launched, "nothing was computed for nobody"


def test_who_could_be_admitted_is_not_kept_waiting() -> None:
    """A request that comes while a step is ahead is computed in the one after it."""
    engine = Engine(runs_ahead=True)
    engine.add(request("a", ignore_eos=True))
    engine.step()
    engine.add(request("b", ignore_eos=True))
    engine.step()
    assert not engine.tokens["b"]
    engine.step()
    assert 1 == len(engine.tokens["b"])


def test_who_cannot_be_admitted_yet_stops_nobody() -> None:
    """All places are taken: steps are launched ahead until somebody ends."""
    engine = Engine(runs_ahead=True, max_num_seqs=1)
    for name in "ab":
        engine.add(request(name, max_tokens=4, ignore_eos=True))
    engine.run()

    assert 6 == engine.device.num_ahead
    assert [4, 4] == [len(tokens) for tokens in engine.tokens.values()]


@pytest.mark.parametrize(
    ("params", "num_ahead"),
    [
        ({"temperature": 0.7}, 3),
        ({"temperature": 0.7, "top_p": 0.9}, 0),
        ({"temperature": 0.7, "top_p": 0.9, "top_k": 256}, 3),
        ({"temperature": 0.7, "top_k": 257}, 0),
        ({"temperature": 0.0, "top_p": 0.9}, 3),
        ({"presence_penalty": 0.5}, 0),
    ],
)
def test_only_who_needs_no_token_before_is_computed_ahead(
    params: dict[str, float], num_ahead: int
) -> None:
    """Penalties count tokens, and what is cut may have to be drawn again."""
    engine = Engine(runs_ahead=True)
    engine.add(request("a", max_tokens=4, ignore_eos=True, **params))
    engine.run()

    assert num_ahead == engine.device.num_ahead


def test_what_runs_ahead_when_all_have_ended_is_forgotten() -> None:
    """It was computed for nobody, and says nothing to who comes next."""
    plain, ahead = Engine(runs_ahead=False), Engine(runs_ahead=True)
    for engine in (plain, ahead):
        engine.add(request("a", ignore_eos=True, max_tokens=3))
        engine.run()
    stop = plain.tokens["a"][1]
    ahead.add(request("b", stop_token_ids=(stop,)))
    ahead.run()
    assert FinishReason.STOP == ahead.reasons["b"]
    assert 1 == ahead.device.num_launched - ahead.device.num_waited

    ahead.add(request("c", ignore_eos=True, max_tokens=3))
    ahead.run()

    assert plain.tokens["a"] == ahead.tokens["c"]


def test_a_step_that_ran_ahead_of_an_abort_is_not_waited_for() -> None:
    """The one stream was aborted; who comes later does not hear of what was computed for it."""
    told: list[tuple[int, int]] = []

    class Ear(Pace):
        """Notes what steps it is told of."""

        def observe(
            self, num_decodes: int, num_prefill_tokens: int, *_args: float, **_kwargs: bool
        ) -> None:
            told.append((num_decodes, num_prefill_tokens))

    engine = Engine(runs_ahead=True, pace=Ear(0.0))
    engine.add(request("a", ignore_eos=True))
    engine.step()
    engine.loop.handle(Abort("a"))
    assert not engine.loop.has_work
    engine.add(request("b", ignore_eos=True, max_tokens=2))
    engine.step()

    assert 1 == len(engine.tokens["b"])
    assert [(0, 3), (0, 3)] == told


def test_a_trace_tells_only_of_who_was_there() -> None:
    """A step for somebody who had ended is none of theirs."""
    file = io.StringIO()
    plain = Engine(runs_ahead=False)
    plain.add(request("a", ignore_eos=True))
    plain.run()
    ahead = Engine(runs_ahead=True, trace=StepTrace(file))
    ahead.add(request("a", stop_token_ids=(plain.tokens["a"][2],), max_tokens=9))
    ahead.add(request("b", (4, 5), max_tokens=6, ignore_eos=True))
    ahead.run()

    steps = [json.loads(line) for line in file.getvalue().splitlines()]
    computed = {name: sum(name in step["decode"] for step in steps) for name in "ab"}
    assert {name: len(tokens) - 1 for name, tokens in ahead.tokens.items()} == computed
    assert ahead.loop.stats().num_steps == len(steps)
