"""`--trace`: what each step computed, and who waited, as lines of JSON.

A line is `{"step": 3, "prefill": {"a": 32}, "decode": {"b": 1}, "waiting": ["c"]}`: tokens by
request, and those that were not admitted yet or have been preempted, by rank.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence as Ordered
from typing import TextIO

from streamwell.engine.sequence import Step

#: A trace ends here: some hundred thousand steps of a few requests.
MAX_TRACE_CHARS = 64 << 20


class StepTrace:
    """Writes a line per step, until there is no more room for it."""

    def __init__(self, file: TextIO) -> None:
        """`file` belongs to the trace, and should be buffered by the line."""
        self._file = file
        self._num_steps = 0
        self._num_chars_left = MAX_TRACE_CHARS

    def write(self, step: Step, waiting: Ordered[str]) -> None:
        """Write a step that has not been applied yet; a full disk ends the trace, and no more."""
        tokens: dict[str, dict[str, int]] = {"prefill": {}, "decode": {}}
        for chunk in step.chunks:
            if chunk.seq.is_over:  # computed for nobody
                continue
            phase = "decode" if chunk.is_decode else "prefill"
            tokens[phase][chunk.seq.request_id] = chunk.cost
        line = json.dumps({"step": self._num_steps, **tokens, "waiting": waiting}) + "\n"
        self._num_steps += 1
        self._num_chars_left -= len(line)
        if self._num_chars_left >= 0:
            with contextlib.suppress(OSError):
                self._file.write(line)
