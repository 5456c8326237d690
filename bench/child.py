"""A contender in a process of its own: `python -m bench.child NAME FOLDER PRECISION THREADS`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.cases import Case, Measures, measure
from bench.protocol import Trace, answer_requests

#: How long a child may take to go when it is told to.
EXIT_TIMEOUT_S = 30.0
#: Where `python -m bench...` works, whichever Python it is.
ROOT = Path(__file__).parents[1]


class Child:
    """The parent's end: starts a program that speaks `bench.protocol`, and ends it on leaving."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | (environment or {}),
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *args: object) -> None:
        try:
            self._process.communicate(timeout=EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def run(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> Trace:
        """Let the contender answer the prompts.

        Raises:
            RuntimeError: the process has ended; it said why on standard error.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            request = {"prompts": prompts, "max_tokens": max_tokens}
            print(json.dumps(request), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"{self.name} has ended")
        trace: dict[str, Any] = json.loads(answer)
        streams = tuple(tuple(stream) for stream in trace["token_times_s"])
        return Trace(streams, trace["wall_s"])

    def measure(self, case: Case, seed: str) -> Measures:
        """The figures of one run of a case, with the prompts of this seed."""
        trace = self.run(case.prompts(seed), case.new_tokens)
        return measure(trace, case)


def command_of(name: str, folder: Path, precision: str, num_threads: int) -> tuple[str, ...]:
    """How to start one of `bench.contenders`."""
    python = (sys.executable, "-m", "bench.child")
    return (*python, name, str(folder), precision, str(num_threads))


def main() -> None:
    from bench.contenders import CONTENDERS, OTHERS

    name, folder, precision, num_threads = sys.argv[1:]
    make = (CONTENDERS | OTHERS)[name]
    answer_requests(lambda: make(Path(folder), precision, int(num_threads)))


if __name__ == "__main__":
    main()
