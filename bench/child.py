"""A contender in a process of its own: `python -m bench.child NAME FOLDER DTYPE THREADS`.

The parent writes one JSON object per run to the child's standard input and reads one per run from
its standard output. The child ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.contenders import CONTENDERS, Trace

#: How long a child may take to go when it is told to.
EXIT_TIMEOUT_S = 30.0


class Child:
    """The parent's end: starts the process, and ends it on leaving the context."""

    def __init__(self, name: str, folder: Path, dtype: str, num_threads: int) -> None:
        self.name = name
        command = [sys.executable, "-m", "bench.child", name, str(folder), dtype, str(num_threads)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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
        request = {"prompts": prompts, "max_tokens": max_tokens}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.name} has ended")
        trace: dict[str, Any] = json.loads(answer)
        streams = tuple(tuple(stream) for stream in trace["token_times_s"])
        return Trace(streams, trace["wall_s"])


def main() -> None:
    """Load the contender, then answer one line with one line."""
    name, folder, dtype, num_threads = sys.argv[1:]
    # whatever a library prints goes to standard error; standard output is the parent's
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    contender = CONTENDERS[name](Path(folder), dtype, int(num_threads))
    for line in sys.stdin:
        request = json.loads(line)
        trace = contender.run(request["prompts"], request["max_tokens"])
        answer = {"token_times_s": trace.token_times_s, "wall_s": trace.wall_s}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
