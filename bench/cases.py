"""What the offline benchmarks let every contender do, and the figures that come of it."""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bench.protocol import Trace
from bench.report import Column
from streamwell.cli.bench.figures import percentile

PROMPT_TOKENS, NEW_TOKENS = 128, 32
#: Random prompts keep to ids that all of our tokenizers know.
FIRST_ID, LAST_ID = 10, 1900

COLUMNS = {
    "prefill_tok_s": Column("prefill tok/s", more_is_better=True),
    "wall_tok_s": Column("wall tok/s", more_is_better=True),
    "decode_tok_s": Column("decode tok/s", more_is_better=True),
    "ttft_ms": Column("TTFT ms", more_is_better=False),
    "itl_ms": Column("ITL ms", more_is_better=False),
}

#: One measurement of one contender.
Measures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Case:
    """So many prompts of so many tokens at once, and so many new tokens for each.

    A single new token makes it a case of prefill: it comes out of the prompt's own forward pass.
    """

    num_streams: int
    prompt_tokens: int = PROMPT_TOKENS
    new_tokens: int = NEW_TOKENS

    @property
    def is_prefill(self) -> bool:
        return self.new_tokens == 1

    @property
    def name(self) -> str:
        if self.is_prefill:
            return f"prefill {self.prompt_tokens}"
        usual = self.prompt_tokens == PROMPT_TOKENS
        return f"{self.num_streams} streams" + ("" if usual else f" after {self.prompt_tokens}")

    def prompts(self, seed: str) -> list[list[int]]:
        """Distinct random prompts; the same ones for the same seed."""
        ids = random.Random(seed)
        return [
            [ids.randint(FIRST_ID, LAST_ID) for _ in range(self.prompt_tokens)]
            for _ in range(self.num_streams)
        ]


#: Small, and the same for everybody: threads, caches and compilers wake up.
WARM_UP = Case(num_streams=2, new_tokens=2)


def cases_of(prefill: Sequence[int], streams: Sequence[int]) -> list[Case]:
    """One prompt of each length in `prefill`, then decoding with each number of streams."""
    prompts = [Case(1, prompt_tokens=length, new_tokens=1) for length in prefill]
    return prompts + [Case(number) for number in streams]


def measure(trace: Trace, case: Case) -> Measures:
    """The figures of one run.

    Raises:
        RuntimeError: a stream did not get its tokens, so that nothing can be compared.
    """
    streams = trace.token_times_s
    if any(len(stream) != case.new_tokens for stream in streams):
        raise RuntimeError(f"tokens per stream: {[len(stream) for stream in streams]}")
    if case.is_prefill:
        return {"prefill_tok_s": case.num_streams * case.prompt_tokens / trace.wall_s}
    gaps = [b - a for times in streams for a, b in itertools.pairwise(times)]
    # pure decode: from the last stream's first token to the first stream's last one
    begin, end = max(times[0] for times in streams), min(times[-1] for times in streams)
    decoded = sum(begin < moment <= end for times in streams for moment in times)
    return {
        "wall_tok_s": len(streams) * case.new_tokens / trace.wall_s,
        # where the first stream ends before the last one begins there is no such time
        **({"decode_tok_s": decoded / (end - begin)} if end > begin else {}),
        "ttft_ms": 1e3 * statistics.median(times[0] for times in streams),
        "itl_ms": 1e3 * percentile(gaps, 50),
    }


class Runner(Protocol):
    """A contender that takes its turn, whatever it is made of."""

    @property
    def name(self) -> str: ...

    def measure(self, case: Case, seed: str) -> Measures:
        """Run a case once.

        Raises:
            RuntimeError: it could not; it will not be asked again.
        """


def run_round(runners: list[Runner], cases: Sequence[Case], index: int) -> list[dict[str, Any]]:
    """Every case once for every contender; whose turn is first changes with the round.

    A contender that fails is reported and taken out of `runners`.
    """
    results = []
    for case in cases:
        shift = index % len(runners) if runners else 0
        for runner in (*runners[shift:], *runners[:shift]):
            try:
                measures = runner.measure(case, f"{index} {case.name}")
            except RuntimeError as error:
                print(f"{runner.name} is left out from here on: {error}", flush=True)
                runners.remove(runner)
                continue
            figures = "  ".join(f"{name}={value:.1f}" for name, value in measures.items())
            print(f"round {index + 1}  {case.name:12}  {runner.name:20}  {figures}", flush=True)
            results.append({"round": index, "case": case.name, "contender": runner.name} | measures)
    return results
