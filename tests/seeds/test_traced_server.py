"""`streamwell serve --trace` and `streamwell trace`, as an operator uses them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "e2e"))

from harness import ServerProcess

NUM_TOKENS = 8


@pytest.mark.slow
def test_req_20_a_server_tells_which_run_was_in_which_step(tmp_path: Path) -> None:
    """Each run is prefilled and then decoded, once per token; the picture has a row for it."""
    file, svg = tmp_path / "trace.jsonl", tmp_path / "trace.svg"
    flags = ("--trace", str(file), "--max-num-seqs", "2", "--num-threads", "1")
    body = {"max_tokens": NUM_TOKENS, "temperature": 0, "ignore_eos": True}
    with closing(ServerProcess(tmp_path, *flags)) as server, ThreadPoolExecutor(4) as threads:
        server.wait_until_ready()
        prompts = [body | {"prompt": f"Number {number}"} for number in range(4)]
        answers = threads.map(lambda prompt: server.post("/v1/completions", prompt), prompts)
        runs = [f"{answer.json()['id']}/0" for answer in answers]
    steps = [json.loads(line) for line in file.read_text().splitlines()]
    command = [sys.executable, "-m", "streamwell", "trace", str(file), "--output", str(svg)]
    subprocess.run(command, check=True)

    for run in runs:
        assert NUM_TOKENS - 1 == sum(_is_in(run, step["decode"]) for step in steps)
        assert any(_is_in(run, step["prefill"]) for step in steps)
        assert run in svg.read_text()
    assert 2 >= max(len(step["prefill"] | step["decode"]) for step in steps)


def _is_in(run: str, requests: Iterable[str]) -> bool:
    return any(request.startswith(f"{run}/") for request in requests)
