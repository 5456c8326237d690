"""What serving costs beside computing: `python -m bench.overhead`.

The same chat requests, once on the bare engine in this process and once over HTTP with the run log
on: all at once, every token streamed. They take turns, round after round.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from bench.latency import Engine
from bench.load import drive
from bench.models import model_folder
from bench.server import LEVEL_TIMEOUT_S, Prompts, ours
from bench.settings import PRECISIONS
from training.server_process import running


def offline(
    engine: Engine, prompts: Sequence[Sequence[int]], bodies: list[dict[str, Any]]
) -> float:
    """Tokens per second of the bare engine."""
    started = time.perf_counter()
    engine.tokens.clear()
    for index, (prompt_ids, body) in enumerate(zip(prompts, bodies, strict=True)):
        engine.add(str(index), prompt_ids, body["max_tokens"])
    while engine.scheduler.has_work:
        engine.step()
    return sum(map(len, engine.tokens.values())) / (time.perf_counter() - started)


def over_http(base_url: str, bodies: list[dict[str, Any]]) -> float:
    """Tokens per second that clients see."""
    load = drive(base_url, bodies, len(bodies), timeout_s=LEVEL_TIMEOUT_S)
    answers, wall_s = asyncio.run(load)
    return sum(answer.completion_tokens for answer in answers) / wall_s


class Contest:
    """A bare engine and a server with the same model, and requests for both."""

    def __init__(self, folder: Path, precision: str, base_url: str) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._texts = Prompts(folder)
        self._engine = Engine(folder, precision)
        self._base_url = base_url
        self._num_rounds = 0
        self.ratio(2, "warm up")

    def ratio(self, streams: int, seed: str) -> float:
        """Served by bare tokens per second; the same requests for both, who begin by turns."""
        bodies = self._texts.bodies("", streams, seed)
        prompts = [
            self._tokenizer.apply_chat_template(
                body["messages"], add_generation_prompt=True, return_dict=False
            )
            for body in bodies
        ]
        sides = {
            "bare": lambda: offline(self._engine, prompts, bodies),
            "served": lambda: over_http(self._base_url, bodies),
        }
        self._num_rounds += 1
        order = reversed(sides) if self._num_rounds % 2 else sides
        speeds = {name: sides[name]() for name in order}
        bare, served = speeds["bare"], speeds["served"]
        print(f"{streams} streams: bare {bare:.1f}, served {served:.1f} tok/s", flush=True)
        return served / bare


def main() -> None:
    """Measure, and print a line per round and the medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__)
    parser.add_argument("--model", default="qwen05", help="a name of bench.models, or a folder")
    parser.add_argument("--precision", default="float32", choices=PRECISIONS)
    parser.add_argument("--streams", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    folder = model_folder(args.model)
    ratios: dict[int, list[float]] = {streams: [] for streams in args.streams}
    with tempfile.TemporaryDirectory(prefix="streamwell-bench-") as scratch:
        target = ours(folder, args.precision, Path(scratch))
        with running(target, Path(scratch) / "server.log") as base_url:
            contest = Contest(folder, args.precision, base_url)
            for index in range(args.rounds):
                for streams in args.streams:
                    ratios[streams].append(contest.ratio(streams, f"{index} {streams}"))
    for streams, values in ratios.items():
        spread = f"{min(values):.3f}-{max(values):.3f}"
        print(f"{streams} streams: served/bare {statistics.median(values):.3f} ({spread})")


if __name__ == "__main__":
    main()
