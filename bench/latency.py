"""What a stream feels of others, and a conversation of its past: `python -m bench.latency`.

First, a few streams run, a very long prompt arrives, and in the middle of it a very short one: how
long the streams' tokens are apart, and how many steps the short prompt waits. Then a conversation
of ten turns: how many tokens each turn computes, and when its first token comes. Our engine alone,
as its process runs it, with the server's defaults.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import torch

from bench.models import model_folder
from bench.settings import PRECISIONS, engine_options
from streamwell.core.types import GenerateRequest, SamplingParams
from streamwell.engine.block_pool import BlockPool
from streamwell.engine.loader import load
from streamwell.engine.loop import EngineLoop
from streamwell.engine.messages import Add, EngineConfig, usual_tokens_per_step
from streamwell.engine.pace import Pace
from streamwell.engine.scheduler import Scheduler
from streamwell.settings import Settings

TURNS, TURN_TOKENS, ANSWER_TOKENS = 10, 60, 32
STREAM_PROMPT_TOKENS, SETTLING_STEPS, QUIET_STEPS = 128, 5, 40


class Engine:
    """One engine, stepped by hand; it notes what came when."""

    def __init__(self, folder: Path, precision: str) -> None:
        defaults = Settings()
        config = EngineConfig(
            model_path=str(folder),
            device="cpu",
            max_model_len=None,
            max_num_seqs=defaults.max_num_seqs,
            max_num_batched_tokens=defaults.max_num_batched_tokens,
            kv_cache_bytes=None,
            block_size=defaults.block_size,
            num_threads=torch.get_num_threads(),
            **engine_options(precision),
        )
        self.model = model = load(config, lambda stage, progress: None)
        num_tokens = config.tokens_per_step(usual_tokens_per_step(model.info))
        pool = BlockPool(model.info.num_blocks, model.info.block_size)
        self.scheduler = Scheduler(
            pool,
            max_num_seqs=defaults.max_num_seqs,
            max_num_batched_tokens=num_tokens,
            max_model_len=model.info.max_model_len,
            eos_token_ids=model.eos_token_ids,
        )
        pace = Pace(
            defaults.step_stretch,
            short_step_s=defaults.short_step_s,
            max_num_batched_tokens=num_tokens,
        )
        self._loop = EngineLoop(self.scheduler, model.runner, pool, pace)
        self.tokens: dict[str, list[int]] = {}

    def add(
        self,
        request_id: str,
        prompt_ids: Sequence[int],
        max_tokens: int,
        *,
        ignore_eos: bool = True,
    ) -> None:
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=ignore_eos)
        self.tokens[request_id] = []
        request = GenerateRequest(
            request_id=request_id, prompt_ids=tuple(prompt_ids), sampling=sampling
        )
        self._loop.handle(Add(request))

    def step(self) -> float:
        """Seconds of one step."""
        started = time.perf_counter()
        for output in self._loop.step():
            self.tokens[output.request_id] += output.token_ids
        return time.perf_counter() - started

    def abort_all(self) -> None:
        for request_id in self.tokens:
            self.scheduler.abort(request_id)


def measure_pause(engine: Engine, ids: Iterator[int], streams: int, prompt_tokens: int) -> None:
    """Print how far tokens are apart before and during a long prefill."""
    names = [f"stream {i}" for i in range(streams)]
    for name in names:
        engine.add(name, _take(ids, STREAM_PROMPT_TOKENS), 4000)
    while not all(engine.tokens[name] for name in names):
        engine.step()
    for _ in range(SETTLING_STEPS):
        engine.step()
    before = [engine.step() for _ in range(QUIET_STEPS)]
    engine.add("long", _take(ids, prompt_tokens), 1)
    during = [engine.step() for _ in range(SETTLING_STEPS)]
    engine.add("short", _take(ids, 10), 1)
    waited = 0
    while not engine.tokens["long"]:
        waited += not engine.tokens["short"]
        during.append(engine.step())
    engine.abort_all()
    quiet, busy = _p99(before), _p99(during)
    print(
        f"{streams} streams: {1e3 * statistics.median(before):.0f} ms per token, p99 {quiet:.0f} ms"
    )
    print(f"  while {prompt_tokens} tokens prefill ({sum(during):.1f} s): p99 {busy:.0f} ms,")
    print(f"  {busy / quiet:.2f} times as long; 10 tokens waited {waited} steps for their first")


def measure_conversation(engine: Engine, ids: Iterator[int]) -> None:
    """Print what each turn of a conversation computes, and when its first token comes."""
    history: list[int] = []
    for turn in range(1, TURNS + 1):
        history += _take(ids, TURN_TOKENS)
        looked_up, found = engine.scheduler.num_queried_tokens, engine.scheduler.num_hit_tokens
        name, started, first_s = f"turn {turn}", time.perf_counter(), 0.0
        engine.add(name, history, ANSWER_TOKENS)
        while len(engine.tokens[name]) < ANSWER_TOKENS:
            engine.step()
            if engine.tokens[name] and not first_s:
                first_s = time.perf_counter() - started
        history += engine.tokens[name]
        found = engine.scheduler.num_hit_tokens - found
        computed = engine.scheduler.num_queried_tokens - looked_up - found
        print(f"turn {turn:2}: {computed:4} tokens computed, first token {1e3 * first_s:5.0f} ms")


def _take(ids: Iterator[int], count: int) -> list[int]:
    return [next(ids) for _ in range(count)]


def _p99(seconds: list[float]) -> float:
    """In milliseconds."""
    return 1e3 * sorted(seconds)[-(-len(seconds) * 99 // 100) - 1]


def _random_ids(seed: int) -> Iterator[int]:
    rng = Random(seed)
    while True:
        yield rng.randrange(100, 2000)


def main() -> None:
    """Measure both, and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.latency", description=__doc__)
    parser.add_argument("--model", default="qwen05", help="a name of bench.models, or a folder")
    parser.add_argument("--precision", default="float32", choices=PRECISIONS)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--prompt-tokens", type=int, default=8000)
    args = parser.parse_args()
    engine, ids = Engine(model_folder(args.model), args.precision), _random_ids(0)
    for streams in args.streams:
        measure_pause(engine, ids, streams, args.prompt_tokens)
    measure_conversation(engine, ids)


if __name__ == "__main__":
    main()
