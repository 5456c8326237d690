"""What `streamwell bench` shows of what it measured: tables, and a JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streamwell.cli.bench.figures import LATENCIES, Figures, failures_by_kind, figures_of
from streamwell.cli.bench.options import BenchOptions, Level
from streamwell.cli.bench.recording import Recording
from streamwell.cli.harmless import harmless
from streamwell.cli.tables import print_table

#: What vLLM calls the figures that are not latencies.
_NAMES = {
    "completed": "Successful requests",
    "failed": "Failed requests",
    "unfinished": "Unfinished requests",
    "duration": "Benchmark duration (s)",
    "total_input_tokens": "Total input tokens",
    "total_output_tokens": "Total generated tokens",
    "request_throughput": "Request throughput (req/s)",
    "output_throughput": "Output token throughput (tok/s)",
    "total_token_throughput": "Total token throughput (tok/s)",
}
_STATISTICS = {"mean": "Mean", "median": "Median", "p99": "P99"}
#: What tells levels apart at a glance.
_COMPARED = {
    "request_throughput": "req/s",
    "output_throughput": "tok/s",
    "median_ttft_ms": "Median TTFT (ms)",
    "p99_ttft_ms": "P99 TTFT (ms)",
    "median_itl_ms": "Median ITL (ms)",
    "p99_itl_ms": "P99 ITL (ms)",
    "failed": "failed",
}
#: Above this share of a core the load generator itself may have been what was slow.
_BUSY_SHARE = 0.9


@dataclass(frozen=True)
class Result:
    """One level of load, and what was measured; complete when it is made."""

    level: Level
    recording: Recording

    @cached_property
    def figures(self) -> Figures:
        return figures_of(self.recording)


def print_level(result: Result) -> None:
    """The figures of one level, and what went wrong in it."""
    figures = result.figures
    print_table((result.level.name, ""), [(_NAMES[key], _number(figures[key])) for key in _NAMES])
    if figures["completed"]:
        rows = [
            (f"{key.upper()} (ms)", *(_number(figures[f"{part}_{key}_ms"]) for part in _STATISTICS))
            for key in LATENCIES
        ]
        print_table(("", *_STATISTICS.values()), rows)
    for remark in _remarks(result.recording):
        print(harmless(remark))


def print_comparison(results: Sequence[Result]) -> None:
    """A line per level, if there are several."""
    if len(results) < 2:
        return
    rows = [
        (result.level.label, *(_number(result.figures[key]) for key in _COMPARED))
        for result in results
    ]
    print_table((results[0].level.unit, *_COMPARED.values()), rows)


def as_json(
    results: Sequence[Result],
    options: BenchOptions,
    of_all: Mapping[str, Any],
    of_each: Mapping[str, Any],
) -> str:
    """A file with an object per level, whose keys are those of vLLM's result files.

    Args:
        results: of the levels.
        options: that they were measured with.
        of_all: what is said once.
        of_each: what is said of each level.
    """
    levels = [{**of_each, **_level_json(result, options)} for result in results]
    return json.dumps({**of_all, "levels": levels}, indent=1, ensure_ascii=False) + "\n"


def _level_json(result: Result, options: BenchOptions) -> dict[str, Any]:
    rate = result.level.request_rate or math.inf
    failures = failures_by_kind(result.recording)
    return {
        "num_prompts": options.num_prompts,
        "request_rate": "inf" if math.isinf(rate) else rate,
        "burstiness": options.burstiness,
        "max_concurrency": result.level.concurrency,
        **result.figures,
        "failures": {kind: count for kind, (count, _) in failures.items()},
    }


def _remarks(recording: Recording) -> Iterator[str]:
    for kind, (count, message) in failures_by_kind(recording).items():
        yield f"{count} failed by {kind}, the first of them: {message}"
    if recording.cpu_s > _BUSY_SHARE * recording.duration_s:
        share = recording.cpu_s / recording.duration_s
        yield (
            f"This command kept {share:.0%} of a core busy: latencies may be its own. "
            "Share the load among several of it."
        )


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.2f}"
