"""Our engine next to Transformers, offline: `python -m bench.engine`.

All contenders have the same weights, dtype and number of threads, each in a process of its own.
They take turns, round after round, so that a slow minute of the machine hits all of them: what
counts are the ratios.
"""

from __future__ import annotations

import contextlib

import torch

from bench.cases import COLUMNS, WARM_UP, Runner, cases_of, run_round
from bench.child import Child, command_of
from bench.command import command_line, publish
from bench.contenders import CONTENDERS
from bench.models import model_folder
from bench.report import machine, print_machine, resolve_dtype

#: Prefill is measured with one long prompt, and the one token that it brings.
PREFILL_TOKENS = 512


def main() -> None:
    """Measure, and print what was measured."""
    parser = command_line("bench.engine", __doc__, rounds=3)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    folder, dtype = model_folder(args.model), resolve_dtype(args.dtype)
    facts = machine() | {"model": args.model, "dtype": dtype, "threads": args.threads}
    print_machine(facts)
    commands = {name: command_of(name, folder, dtype, args.threads) for name in CONTENDERS}
    with contextlib.ExitStack() as stack:
        runners: list[Runner] = []
        for name, command in commands.items():
            child = stack.enter_context(Child(name, command))
            child.measure(WARM_UP, "warm up")
            runners.append(child)
        cases = cases_of([PREFILL_TOKENS], args.streams)
        results = [row for i in range(args.rounds) for row in run_round(runners, cases, i)]
    publish(results, COLUMNS, facts, args.json)


if __name__ == "__main__":
    main()
