"""Our PyTorch path next to Transformers' `generate` on one GPU: `python -m bench.gpu`.

Needs nothing but this package, PyTorch with CUDA and Transformers. Same weights, same dtype, same
prompts; both live in this process, since a GPU runs one thing at a time anyway, and take turns.
`--device cpu --model tiny` only tries the program; its figures mean nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bench.cases import COLUMNS, NEW_TOKENS, WARM_UP, Case, Measures, Runner, measure, run_round
from bench.command import command_line, publish
from bench.contenders import Generate, Streamwell
from bench.models import model_folder
from bench.protocol import Contender
from bench.report import OURS, machine, print_machine, resolve_dtype
from streamwell.engine.messages import BATCHED_TOKENS_KERNELS
from streamwell.settings import Settings

#: `generate` decodes all streams in one batch: ours may, too.
MIN_SEQS = 64
#: Far more than a model of 2000 million parameters needs for 128 streams of 1100 tokens.
KV_CACHE_BYTES = 8 << 30


class InProcess:
    """A `cases.Runner` without a process around it."""

    def __init__(self, name: str, contender: Contender) -> None:
        self.name = name
        self._contender = contender

    def measure(self, case: Case, seed: str) -> Measures:
        trace = self._contender.run(case.prompts(seed), case.new_tokens)
        return measure(trace, case)


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = command_line("bench.gpu", __doc__, rounds=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--prompts", type=int, nargs="+", default=[128, 1024], metavar="TOKENS")
    parser.add_argument("--new-tokens", type=int, default=4 * NEW_TOKENS)
    parser.add_argument(
        "--batched-tokens", type=int, default=BATCHED_TOKENS_KERNELS, help="tokens of our steps"
    )
    parser.add_argument("--compile", action="store_true", help="measure --compile as well")
    parser.add_argument("--no-cuda-graphs", action="store_true", help="measure that as well")
    return parser.parse_args(arguments)


def runners_of(args: argparse.Namespace, folder: Path, dtype: str) -> list[Runner]:
    """Everybody, loaded and warmed up."""
    threads, num_seqs = torch.get_num_threads(), max(MIN_SEQS, *args.streams)
    longest = max(*args.prompts, WARM_UP.prompt_tokens) + args.new_tokens
    runners: list[Runner] = []
    settings = Settings(
        device=args.device,
        model_impl="torch",
        max_model_len=longest,
        max_num_seqs=num_seqs,
        max_num_batched_tokens=max(args.batched_tokens, num_seqs),
    )
    ours = {OURS: settings}
    if args.compile:
        ours[f"{OURS} --compile"] = replace(settings, compile=True)
    if args.no_cuda_graphs:
        ours[f"{OURS} --no-cuda-graphs"] = replace(settings, cuda_graphs=False)
    for name, each in ours.items():
        engine = Streamwell(folder, dtype, threads, each, kv_cache_bytes=KV_CACHE_BYTES)
        runners.append(InProcess(name, engine))
    runners.append(InProcess("generate", Generate(folder, dtype, threads, args.device)))
    for runner in runners:
        runner.measure(WARM_UP, "warm up")
    return runners


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print what was measured.

    Raises:
        SystemExit: there is no such device.
    """
    args = parse_args(arguments)
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        raise SystemExit("no GPU that PyTorch can use; --device cpu tries the program")
    folder, dtype = model_folder(args.model), resolve_dtype(args.dtype)
    facts: dict[str, Any] = machine() | {
        name: getattr(args, name) for name in ("model", "device", "new_tokens", "batched_tokens")
    }
    facts["dtype"] = dtype
    print_machine(facts)
    runners = runners_of(args, folder, dtype)
    cases = [
        Case(number, tokens, args.new_tokens) for tokens in args.prompts for number in args.streams
    ]
    results = [row for i in range(args.rounds) for row in run_round(runners, cases, i)]
    publish(results, COLUMNS, facts, args.json)


if __name__ == "__main__":
    main()
