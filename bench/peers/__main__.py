"""Us next to every peer that is installed, in one run: `python -m bench.peers`.

Offline, all engines are loaded and take turns, case by case and round after round; over HTTP, each
server in turn is started, loaded and stopped, round after round. Everybody has the same weights
and as many threads, each on a core of its own. Precision by precision: `full` is what this machine
computes fast (`--dtype`), peers that have none of it are named after what they do instead.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import bench.cases
import bench.server
from bench.cases import WARM_UP, Case, Runner, cases_of, run_round
from bench.command import command_line
from bench.models import model_folder
from bench.peers.field import FIELD, SAME_FILE, Peer, Setup
from bench.peers.places import installed_version
from bench.plot import panels, write_svg
from bench.report import (
    OURS,
    machine,
    print_machine,
    print_summary,
    resolve_dtype,
    summarize,
    write_json,
)
from bench.server import Load, Prompts, add_requests_per_client

Rows = list[dict[str, Any]]


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = command_line("bench.peers", __doc__, rounds=3)
    peers = [name for name in FIELD if name != OURS]
    parser.add_argument("--peers", nargs="*", choices=peers, default=peers, metavar="PEER")
    precisions = ["full", "int8", "int4"]
    parser.add_argument(
        "--precision", nargs="+", choices=[*precisions, SAME_FILE], default=precisions
    )
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    add_requests_per_client(parser)
    parser.add_argument("--prefill", type=int, nargs="*", default=[128, 512, 1024])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--offline", action="store_true", help="the engines only")
    which.add_argument("--http", action="store_true", help="the servers only")
    parser.add_argument("--svg", type=Path, help="draw the medians into this file")
    return parser.parse_args(arguments)


def present(names: Sequence[str]) -> dict[str, Peer]:
    """Us and the peers of these names that can be run; says how to get the others."""
    found = {}
    for name in (OURS, *names):
        missing = FIELD[name].missing()
        if missing is None:
            found[name] = FIELD[name]
        else:
            print(f"{name} is left out: {missing}", flush=True)
    return found


def at_precision(rows: Rows, precision: str) -> Rows:
    return [row | {"case": f"{precision} {row['case']}"} for row in rows]


def run_offline(
    peers: Mapping[str, Peer], setup: Setup, cases: Sequence[Case], num_rounds: int
) -> Rows:
    """Load everybody who has this precision, and let them take turns."""
    with contextlib.ExitStack() as stack:
        runners: list[Runner] = []
        for peer in peers.values():
            if peer.offline is None or setup.precision not in peer.names:
                continue
            label = peer.names[setup.precision]
            try:
                runner = stack.enter_context(peer.offline(setup, label))
                runner.measure(WARM_UP, "warm up")
            except (RuntimeError, OSError) as error:
                print(f"{label} is left out: {error}", flush=True)
            else:
                runners.append(runner)
        rows = [row for i in range(num_rounds) for row in run_round(runners, cases, i)]
    return at_precision(rows, setup.precision)


def run_http(peers: Mapping[str, Peer], setup: Setup, load: Load, num_rounds: int) -> Rows:
    """Serve and load everybody who has this precision and a server, one after the other."""
    targets = []
    for peer in peers.values():
        if peer.server is None or setup.precision not in peer.names:
            continue
        try:
            targets.append(peer.server(setup, peer.names[setup.precision]))
        except RuntimeError as error:
            print(f"{peer.names[setup.precision]} is left out: {error}", flush=True)
    prompts, log_dir = Prompts(setup.folder), setup.data_dir.parent
    rows = []
    for index in range(num_rounds):
        rows += bench.server.run_round(targets, prompts, load, index, log_dir)
    return at_precision(rows, setup.precision)


def report(offline: Rows, http: Rows, facts: Mapping[str, Any], args: argparse.Namespace) -> None:
    """Print what there is so far, and write the files that were asked for."""
    engines = summarize(offline, bench.cases.COLUMNS)
    servers = summarize(http, bench.server.COLUMNS)
    for summary, columns in (
        (engines, bench.cases.COLUMNS),
        (servers, bench.server.COLUMNS),
    ):
        if summary:
            print_summary(summary, columns)
    if args.json:
        runs = {"summary": engines + servers, "runs": offline + http}
        write_json(args.json, {"machine": dict(facts)} | runs)
    if args.svg:
        headers = {"prefill_tok_s": "prefill tok/s", "decode_tok_s": "decode tok/s"}
        write_svg(args.svg, panels(engines, headers) + panels(servers, {"tok_s": "tok/s"}))


def main() -> None:
    """Measure precision by precision; what is there is written after each."""
    args = parse_args()
    torch.set_num_threads(args.threads)
    folder, dtype = model_folder(args.model), resolve_dtype(args.dtype)
    peers = present(args.peers)
    facts = machine() | {"model": args.model, "dtype": dtype, "threads": args.threads}
    load = Load(args.streams, args.requests_per_client)
    facts["requests_per_client"] = load.requests_per_client
    facts["peers"] = {name: version for name in peers if (version := installed_version(name))}
    print_machine(facts)
    cases = cases_of(args.prefill, args.streams)
    offline: Rows = []
    http: Rows = []
    with tempfile.TemporaryDirectory(prefix="streamwell-bench-") as scratch:
        for name in args.precision:
            precision = dtype if name == "full" else name
            data_dir = Path(scratch) / f"data-{precision}"
            setup = Setup(folder, precision, args.threads, max(args.streams), data_dir)
            if not args.http:
                offline += run_offline(peers, setup, cases, args.rounds)
            if not args.offline:
                http += run_http(peers, setup, load, args.rounds)
            report(offline, http, facts, args)


if __name__ == "__main__":
    main()
