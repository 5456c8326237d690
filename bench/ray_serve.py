"""What Ray Serve costs beside a single process: `python -m bench.ray_serve`, where Ray is.

The same greedy chat requests to `streamwell serve` and to `streamwell serve --ray`, both up at the
same time, in turns, round after round. CPU is that of every process but those that compute.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

from bench.load import drive
from bench.server import LEVEL_TIMEOUT_S
from streamwell.cli.bench.recording import Answer
from training.server_process import Target, running

NUM_TOKENS = 200
_SERVE = (sys.executable, "-m", "streamwell", "serve", "brooklet", "--num-threads", "1")
#: What serves on Ray: proxies, gateways and engine replicas, and beside them Ray's controller.
_OF_RAY = ("ray::ProxyActor", "ray::ServeReplica:streamwell", "ray::ServeController")
_ENGINE = "streamwell.engine.process"

Processes = Callable[[], list[psutil.Process]]


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def single_process(log_path: Path) -> Processes:
    """The server with its helpers, by the file that its log goes to."""

    def find() -> list[psutil.Process]:
        here = psutil.Process().children(recursive=True)
        servers = [p for p in here if str(log_path.parent) in _command_line(p)]
        family = [q for p in servers for q in (p, *p.children(recursive=True))]
        return [p for p in family if _ENGINE not in _command_line(p)]

    return find


def ray_processes() -> list[psutil.Process]:
    """Those of the one cluster of this machine that serve."""
    return [p for p in psutil.process_iter() if _command_line(p).startswith(_OF_RAY)]


def cpu_s(processes: Iterable[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return sum(t.user + t.system for t in times)


def _bodies(num_streams: int) -> list[dict[str, Any]]:
    return [
        {
            "model": "brooklet",
            "messages": [{"role": "user", "content": f"Tell me a story about fox {index}."}],
            "max_tokens": NUM_TOKENS,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        for index in range(num_streams)
    ]


def measure(base_url: str, find: Processes, num_streams: int) -> tuple[float, float, float]:
    """Median TTFT in ms, tokens per second, and CPU in µs per event, of one round."""
    before = {process.pid: cpu_s([process]) for process in find()}
    load = drive(base_url, _bodies(num_streams), num_streams, timeout_s=LEVEL_TIMEOUT_S)
    answers, wall_s = asyncio.run(load)
    used_s = sum(cpu_s([p]) - before.get(p.pid, 0.0) for p in find())
    return (
        1000 * statistics.median(answer.ttft_s for answer in answers),
        sum(answer.completion_tokens for answer in answers) / wall_s,
        1e6 * used_s / _num_events(answers),
    )


def _num_events(answers: list[Answer]) -> int:
    return sum(len(answer.text_times_s) for answer in answers)


def main() -> None:
    """Measure, and print a line per round and the medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.ray_serve", description=__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ray-url", help="a `streamwell serve --ray` of this machine that is up")
    parser.add_argument("--replicas", type=int, default=2, help="gateways, and engine replicas")
    args = parser.parse_args()
    replicas = ("--ray-gateways", str(args.replicas), "--ray-replicas", str(args.replicas))
    results: dict[tuple[int, str], list[tuple[float, float, float]]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamwell-ray-")))
        log_path = folder / "single" / "server.log"
        log_path.parent.mkdir()
        alone = Target("single process", (*_SERVE, "--data-dir", str(log_path.parent)))
        on_ray = (*_SERVE, "--data-dir", str(folder / "ray"), "--ray", *replicas)
        contenders = [
            (alone.name, stack.enter_context(running(alone, log_path)), single_process(log_path)),
        ]
        ray_url = args.ray_url or stack.enter_context(
            running(Target("Ray Serve", on_ray), folder / "ray.log")
        )
        contenders.append(("Ray Serve", ray_url, ray_processes))
        for _, url, find in contenders:
            measure(url, find, max(args.streams))  # warm up
        for index in range(args.rounds):
            for streams in args.streams:
                for name, url, find in contenders:
                    row = measure(url, find, streams)
                    results.setdefault((streams, name), []).append(row)
                    print(f"round {index}: {_line(streams, name, [row])}", flush=True)
    print(f"medians of {args.rounds}, load average {os.getloadavg()[0]:.1f}")
    for (streams, name), rows in results.items():
        print(_line(streams, name, rows))


def _line(streams: int, name: str, rows: list[tuple[float, float, float]]) -> str:
    ttft_ms, tok_s, cpu_us = (statistics.median(column) for column in zip(*rows, strict=True))
    figures = f"TTFT {ttft_ms:.0f} ms, {tok_s:.0f} tok/s, {cpu_us:.0f} µs/event"
    return f"{streams} streams, {name}: {figures}"


if __name__ == "__main__":
    main()
