"""Our server next to `transformers serve`, over HTTP: `python -m bench.server`.

The servers take turns: each is started on the same model and dtype with its defaults, warmed up,
put under load on loopback, and stopped. Ours keeps its log of runs, on disk, as it always does.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.command import command_line, publish
from bench.load import drive
from bench.models import model_folder
from bench.report import OURS, Column, machine, print_machine, resolve_dtype
from bench.settings import AS_SAVED, PEER_NUM_BLOCKS, QUANTIZED
from streamwell.cli.bench.figures import percentile
from streamwell.cli.bench.recording import Answer
from training.server_process import Target, running

MIN_NEW_TOKENS, MAX_NEW_TOKENS = 32, 64
MIN_PROMPT_TOKENS, MAX_PROMPT_TOKENS = 150, 400
#: Requests of all clients together, at the least, so that a client alone has more than one or two.
MIN_REQUESTS = 4
LEVEL_TIMEOUT_S = 1200.0

COLUMNS = {
    "tok_s": Column("tok/s", more_is_better=True),
    "ttft_p50_ms": Column("TTFT p50 ms", more_is_better=False),
    "ttft_p95_ms": Column("TTFT p95 ms", more_is_better=False),
    "itl_p50_ms": Column("ITL p50 ms", more_is_better=False),
    "itl_p99_ms": Column("ITL p99 ms", more_is_better=False),
}


@dataclass(frozen=True, slots=True)
class Load:
    """What every server is put under."""

    #: Clients at once, one level after the other.
    levels: Sequence[int]
    #: How many requests each of them sends, the next as soon as the last is answered.
    requests_per_client: int


def add_requests_per_client(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--requests-per-client", type=int, default=2, help="in turn; 1: all requests come at once"
    )


def ours(folder: Path, precision: str, data_dir: Path, num_threads: int | None = None) -> Target:
    """Our server on the CPU, where its peers compute, for a dtype or a quantized precision."""
    option = "--quantization" if precision in (*QUANTIZED, AS_SAVED) else "--dtype"
    serve = (sys.executable, "-m", "streamwell", "serve", str(folder), option, precision)
    threads = () if num_threads is None else ("--num-threads", str(num_threads))
    command = (*serve, "--device", "cpu", *threads, "--data-dir", str(data_dir))
    return Target(OURS, command, str(folder))


def transformers_serve(
    folder: Path, dtype: str, environment: Mapping[str, str] | None = None
) -> list[Target]:
    """Transformers' own server, with and without continuous batching."""
    program = str(Path(sys.executable).parent / "transformers")
    serve = (program, "serve", str(folder), "--dtype", dtype)
    batching = ("--continuous-batching", "--cb-num-blocks", str(PEER_NUM_BLOCKS))
    return [
        Target("transformers serve, batching", (*serve, *batching), str(folder), environment or {}),
        Target("transformers serve", serve, str(folder), environment or {}),
    ]


class Prompts:
    """Distinct random prompts of about the lengths that are asked for."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        texts = ((i, self._tokenizer.decode([i])) for i in range(min(len(self._tokenizer), 8000)))
        control = set(self._tokenizer.get_added_vocab().values())
        self._ids = [
            i for i, text in texts if text.isascii() and text.isprintable() and i not in control
        ]

    def bodies(self, model: str, count: int, seed: str) -> list[dict[str, Any]]:
        """Chat requests; the same ones for the same seed."""
        chosen = random.Random(seed)
        return [
            {
                "model": model,
                "messages": [{"role": "user", "content": self._text(chosen)}],
                "max_tokens": chosen.randint(MIN_NEW_TOKENS, MAX_NEW_TOKENS),
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            for _ in range(count)
        ]

    def _text(self, chosen: random.Random) -> str:
        num_tokens = chosen.randint(MIN_PROMPT_TOKENS, MAX_PROMPT_TOKENS)
        text: str = self._tokenizer.decode(chosen.choices(self._ids, k=num_tokens))
        return text


def measure(answers: Sequence[Answer], wall_s: float) -> dict[str, float]:
    """The figures of one level of load."""
    ttfts = [answer.ttft_s for answer in answers]
    gaps = [gap for answer in answers for gap in answer.gaps_s]
    return {
        "tok_s": sum(answer.completion_tokens for answer in answers) / wall_s,
        "ttft_p50_ms": 1e3 * percentile(ttfts, 50),
        "ttft_p95_ms": 1e3 * percentile(ttfts, 95),
        "itl_p50_ms": 1e3 * percentile(gaps, 50),
        "itl_p99_ms": 1e3 * percentile(gaps, 99),
        "requests": len(answers),
        "prompt_tokens": statistics.mean(answer.prompt_tokens for answer in answers),
        "completion_tokens": statistics.mean(answer.completion_tokens for answer in answers),
    }


def load_levels(
    target: Target, base_url: str, prompts: Prompts, load: Load, round_index: int
) -> Iterator[dict[str, Any]]:
    """Warm a server up and put it under each level of load; one row each."""
    warm_up = prompts.bodies(target.model, 2, f"warm up {round_index}")
    asyncio.run(drive(base_url, warm_up, 2, timeout_s=LEVEL_TIMEOUT_S))
    for level in load.levels:
        num_requests = max(MIN_REQUESTS, load.requests_per_client * level)
        bodies = prompts.bodies(target.model, num_requests, f"{round_index} {level}")
        answers, wall_s = asyncio.run(drive(base_url, bodies, level, timeout_s=LEVEL_TIMEOUT_S))
        head: dict[str, Any] = {"round": round_index, "case": f"{level} clients"}
        row = head | {"contender": target.name} | measure(answers, wall_s)
        figures = "  ".join(f"{key}={row[key]:.1f}" for key in COLUMNS)
        prefix = f"round {round_index + 1}  {row['case']:10}  {target.name:28}"
        print(f"{prefix}  {figures}", flush=True)
        yield row


def run_round(
    chosen: Sequence[Target],
    prompts: Prompts,
    load: Load,
    round_index: int,
    log_dir: Path,
) -> list[dict[str, Any]]:
    """Every server in turn; one that fails is reported and left out."""
    rows: list[dict[str, Any]] = []
    for index, target in enumerate(chosen):
        try:
            with running(target, log_dir / f"{index}.log") as base_url:
                rows += load_levels(target, base_url, prompts, load, round_index)
        except (RuntimeError, TimeoutError) as error:
            print(f"{target.name} is left out of the rest of this round: {error}", flush=True)
    return rows


def main() -> None:
    """Measure, and print what was measured."""
    parser = command_line("bench.server", __doc__, rounds=2)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    add_requests_per_client(parser)
    args = parser.parse_args()
    load = Load(args.clients, args.requests_per_client)
    folder, dtype = model_folder(args.model), resolve_dtype(args.dtype)
    facts = machine() | {"model": args.model, "dtype": dtype}
    print_machine(facts)
    prompts = Prompts(folder)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="streamwell-bench-") as scratch:
        chosen = [ours(folder, dtype, Path(scratch) / "data"), *transformers_serve(folder, dtype)]
        for index in range(args.rounds):
            results += run_round(chosen, prompts, load, index, Path(scratch))
    publish(results, COLUMNS, facts, args.json)


if __name__ == "__main__":
    main()
