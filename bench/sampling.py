"""What choosing a token costs: `python -m bench.sampling`.

Our sampler and Transformers' logits processors with `torch.multinomial`, in turn, on random logits.
A model's step waits for it: one that takes as long as the step halves the tokens per second.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from bench.command import publish
from bench.report import OURS, Column, Row, machine, print_machine
from streamwell.core.types import SamplingParams
from streamwell.engine import sequence
from streamwell.engine.sampler import Sampler

COLUMNS = {"step_ms": Column("ms per step", more_is_better=False)}
CASES = {
    "greedy": {"temperature": 0.0},
    "temperature 1": {"temperature": 1.0},
    "top-p 0.9": {"temperature": 0.7, "top_p": 0.9},
    "top-k 20, top-p 0.8": {"temperature": 0.7, "top_k": 20, "top_p": 0.8},
    "min-p 0.05": {"temperature": 0.7, "min_p": 0.05},
}
REPEATS = 5

Choose = Callable[[torch.Tensor], object]


def ours(params: SamplingParams, rows: int) -> Choose:
    seqs = [sequence.Sequence("a", [1], params) for _ in range(rows)]
    sampler = Sampler(frozenset())
    return lambda logits: sampler(logits, seqs)


def transformers(params: SamplingParams) -> Choose:
    """The processors in the order in which `generate` has them."""
    if params.temperature == 0.0:
        return lambda logits: logits.argmax(-1).tolist()
    processors = LogitsProcessorList([TemperatureLogitsWarper(params.temperature)])
    if params.top_k:
        processors.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1.0:
        processors.append(TopPLogitsWarper(params.top_p))
    if params.min_p:
        processors.append(MinPLogitsWarper(params.min_p))
    ids = torch.zeros(1, 1, dtype=torch.int64)
    return lambda logits: torch.multinomial(processors(ids, logits).softmax(-1), 1).tolist()


def milliseconds(choose: Choose, logits: torch.Tensor) -> float:
    """The best of a few: what else the machine does is not asked."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        choose(logits)
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sampling", description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=151_936, help="how many tokens there are")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--spread", type=float, default=6.0, help="deviation of the logits")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write everything to this file")
    options = parser.parse_args(arguments)
    facts = machine() | {"vocabulary": options.vocabulary, "spread": options.spread}
    print_machine(facts)
    results: list[Row] = []
    for number in range(1, options.rounds + 1):
        for rows in options.streams:
            logits = options.spread * torch.randn(rows, options.vocabulary)
            for case, settings in CASES.items():
                params = SamplingParams(max_tokens=1, **settings)
                contenders = {OURS: ours(params, rows), "transformers": transformers(params)}
                for name, choose in contenders.items():
                    measured = milliseconds(choose, logits)
                    place = {"round": number, "case": f"{rows} streams, {case}", "contender": name}
                    results.append(place | {"step_ms": measured})
    publish(results, COLUMNS, facts, options.json)


if __name__ == "__main__":
    main()
