"""What the evaluators share: a served model, scores, and the table of them."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from training.server_process import Target, running


@dataclass
class Score:
    """How one task went."""

    asked: int = 0
    right: int = 0
    ended: int = 0
    mistakes: list[str] = field(default_factory=list)

    def row(self, task: str) -> str:
        """Format as a line of a Markdown table."""
        right, ended = (100 * part / self.asked for part in (self.right, self.ended))
        return f"| {task} | {self.asked} | {right:.1f} % | {ended:.1f} % |"


def table(scores: dict[str, Score]) -> Iterable[str]:
    """Lay the scores out, those of all tasks last."""
    yield "| task | asked | right | ended |"
    yield "|---|---|---|---|"
    for task in sorted(scores, key=lambda name: (name == "all", name)):
        yield scores[task].row(task)


@contextmanager
def serving(folder: Path, name: str, quantization: str, *flags: str) -> Iterator[str]:
    """Serve a model folder for as long as it is asked; gives the address of the API."""
    with TemporaryDirectory() as scratch:
        command = (sys.executable, "-m", "streamwell", "serve", f"{name}={folder}")
        options = ("--quantization", quantization, "--data-dir", scratch)
        target = Target(name, (*command, *options, *flags), name)
        with running(target, Path(scratch) / "server.log") as base_url:
            yield f"{base_url}/v1"


def parse_arguments(
    description: str, *, folder: Path, model: str, cases: int
) -> argparse.Namespace:
    """Read an evaluator's command line; the values given here are the defaults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--folder", type=Path, default=folder, help="the model to serve")
    parser.add_argument("--url", help="ask this server instead, such as http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default=model, help="its name at the server")
    parser.add_argument("--quantization", choices=("none", "int8", "int4"), default="none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=cases, help="of each task")
    parser.add_argument("--mistakes", type=int, default=0, help="show so many of each task")
    return parser.parse_args()


def evaluate(
    arguments: argparse.Namespace,
    ask_all: Callable[[str], Coroutine[Any, Any, dict[str, Score]]],
    *flags: str,
) -> None:
    """Print a Markdown table of scores, and the mistakes if wanted.

    `ask_all` gets the address of a server that is started for it, with these flags.
    """
    if arguments.url:
        scores = asyncio.run(ask_all(arguments.url))
    else:
        with serving(arguments.folder, arguments.model, arguments.quantization, *flags) as url:
            scores = asyncio.run(ask_all(url))
    print(*table(scores), sep="\n")
    for task, score in scores.items():
        for mistake in score.mistakes[: arguments.mistakes]:
            print(f"{task}: {mistake}")
