"""From what was recorded to the figures of `vllm bench serve`, under its names. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from streamwell.cli.bench.recording import Answer, Recording

#: A figure that nothing was measured for is `None`.
Figures = Mapping[str, int | float | None]

#: Times to the first token, per output token after it, between tokens, and to the end.
LATENCIES = ("ttft", "tpot", "itl", "e2el")


def percentile(values: Sequence[float], percent: float) -> float:
    """Between the two nearest ranks by straight line, as numpy's; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    rank = percent / 100 * (len(ordered) - 1)
    low, high = ordered[math.floor(rank)], ordered[math.ceil(rank)]
    return low + (high - low) * (rank - math.floor(rank))


def figures_of(recording: Recording) -> dict[str, int | float | None]:
    """The figures of one level of load; of requests that failed only their number is in them."""
    answers, duration_s = recording.answers, recording.duration_s
    num_input = sum(answer.prompt_tokens for answer in answers)
    num_output = sum(answer.completion_tokens for answer in answers)
    figures: dict[str, int | float | None] = {
        "duration": duration_s,
        "completed": len(answers),
        "failed": len(recording.failures),
        "unfinished": recording.num_unfinished,
        "total_input_tokens": num_input,
        "total_output_tokens": num_output,
        "request_throughput": _rate(len(answers), duration_s),
        "output_throughput": _rate(num_output, duration_s),
        "total_token_throughput": _rate(num_input + num_output, duration_s),
    }
    for key, values_s in _latencies_s(answers).items():
        figures |= _summary(key, [1e3 * value_s for value_s in values_s])
    return figures


def failures_by_kind(recording: Recording) -> dict[str, tuple[int, str]]:
    """How many failed alike, and what was said of the first; the most common ones first."""
    counts = Counter(failure.kind for failure in recording.failures)
    first = {failure.kind: str(failure) for failure in reversed(recording.failures)}
    return {kind: (count, first[kind]) for kind, count in counts.most_common()}


def _rate(count: int, duration_s: float) -> float:
    return count / duration_s if duration_s else 0.0


def _latencies_s(answers: Sequence[Answer]) -> dict[str, list[float]]:
    return {
        "ttft": [answer.ttft_s for answer in answers],
        "tpot": [
            (answer.e2el_s - answer.ttft_s) / (answer.completion_tokens - 1)
            for answer in answers
            if answer.completion_tokens > 1
        ],
        "itl": [gap_s for answer in answers for gap_s in answer.gaps_s],
        "e2el": [answer.e2el_s for answer in answers],
    }


def _summary(key: str, values_ms: Sequence[float]) -> dict[str, int | float | None]:
    names = (f"mean_{key}_ms", f"median_{key}_ms", f"std_{key}_ms", f"p99_{key}_ms")
    if not values_ms:
        return dict.fromkeys(names)
    return {
        f"mean_{key}_ms": statistics.fmean(values_ms),
        f"median_{key}_ms": statistics.median(values_ms),
        f"std_{key}_ms": statistics.pstdev(values_ms),
        f"p99_{key}_ms": percentile(values_ms, 99),
    }
