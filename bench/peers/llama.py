"""llama.cpp's own programs: its batched benchmark, and its server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from bench.cases import Case, Measures
from bench.peers.places import LLAMA_PROGRAMS, openmp_places
from bench.server import MAX_NEW_TOKENS, MAX_PROMPT_TOKENS
from training.server_process import Target

#: Tokens of a server's slot: the prompt may grow when it is tokenized again, and gets a template.
SLOT_TOKENS = 2 * (MAX_PROMPT_TOKENS + MAX_NEW_TOKENS)
TIMEOUT_S = 1800.0


class BatchedBench:
    """`llama-batched-bench`, which reads all prompts first and then decodes all streams."""

    def __init__(self, name: str, model: Path, num_threads: int) -> None:
        self.name = name
        self._model = model
        self._num_threads = num_threads

    def command(self, case: Case) -> list[str]:
        """Loads the model, warms up, and measures one case; prompts are its own random ones."""
        # the prompt's own forward pass brings the first token
        steps = max(1, case.new_tokens - 1)
        return [
            *(str(LLAMA_PROGRAMS / "llama-batched-bench"), "-m", str(self._model)),
            *("-npp", str(case.prompt_tokens), "-ntg", str(steps), "-npl", str(case.num_streams)),
            *("-c", str(case.num_streams * (case.prompt_tokens + case.new_tokens))),
            *("-t", str(self._num_threads), "--output-format", "jsonl"),
        ]

    def measure(self, case: Case, seed: str) -> Measures:
        try:
            done = subprocess.run(
                self.command(case),
                capture_output=True,
                text=True,
                env=os.environ | openmp_places(self._num_threads),
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(str(error)) from error
        if done.returncode:
            raise RuntimeError(f"exit status {done.returncode} {done.stderr.strip()[-400:]}")
        return measures_of(done.stdout, case)


def measures_of(output: str, case: Case) -> Measures:
    """The figures of a case out of what the program printed.

    Raises:
        RuntimeError: there are none.
    """
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if len(lines) != 1:
        raise RuntimeError(f"no figures in {output[-400:]!r}")
    figures = json.loads(lines[0])
    prefill_s, decode_s = figures["t_pp"], figures["t_tg"]
    if case.is_prefill:
        return {"prefill_tok_s": case.num_streams * case.prompt_tokens / prefill_s}
    return {
        "wall_tok_s": case.num_streams * case.new_tokens / (prefill_s + decode_s),
        "decode_tok_s": case.num_streams * figures["tg"] / decode_s,
        "ttft_ms": 1e3 * prefill_s,
        "itl_ms": 1e3 * decode_s / figures["tg"],
    }


def server(name: str, model: Path, num_threads: int, num_clients: int) -> Target:
    """`llama-server` with a slot for each client."""
    command = (
        *(str(LLAMA_PROGRAMS / "llama-server"), "-m", str(model), "-t", str(num_threads)),
        *("-np", str(num_clients), "-c", str(num_clients * SLOT_TOKENS)),
    )
    return Target(name, command, model.stem, openmp_places(num_threads))
