"""`streamwell bench` against real servers: what it counts is what they counted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from harness import DEADLINE_S, ServerProcess, StartServer, clean_environment, eventually

pytestmark = pytest.mark.slow

SHORT = ("--num-prompts", "6", "--output-len", "8", "--input-len", "40", "--ignore-eos")
REQUESTS = 'request_success_total{finished_reason="length"}'


def command(server: ServerProcess, *flags: str) -> list[str]:
    return [sys.executable, "-m", "streamwell", "bench", "--base-url", server.url, *flags]


def bench(server: ServerProcess, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(server, *flags),
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=DEADLINE_S,
        check=False,
    )


def counted(server: ServerProcess) -> tuple[int, int, int]:
    """Requests, prompt tokens and generated tokens, by the server's own metrics when it is idle."""
    eventually(server.is_idle, "nothing runs")
    metrics = server.metrics()
    names = (REQUESTS, "prompt_tokens_total", "generation_tokens_total")
    requests, prompt_tokens, completion_tokens = (int(metrics[name]) for name in names)
    return requests, prompt_tokens, completion_tokens


def told(file: dict[str, Any]) -> tuple[int, int, int]:
    """The same by what was measured, with the two requests before."""
    levels, probe = file["levels"], file["probe"]
    return (
        2 + sum(level["completed"] for level in levels),
        probe["prompt_tokens"] + sum(level["total_input_tokens"] for level in levels),
        probe["completion_tokens"] + sum(level["total_output_tokens"] for level in levels),
    )


@pytest.mark.parametrize(
    ("flags", "loads"),
    [
        (("--concurrency", "2", "4"), [(2, "inf"), (4, "inf")]),
        (("--request-rate", "50", "inf"), [(None, 50.0), (None, "inf")]),
        (("--concurrency", "3", "--endpoint", "completions"), [(3, "inf")]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value[0], str) else None,
)
def test_what_is_measured_is_what_the_server_counted(
    scripted: ServerProcess,
    tmp_path: Path,
    flags: tuple[str, ...],
    loads: list[tuple[int | None, float | str]],
) -> None:
    """Requests and tokens, in closed and open loops; in tables, in a file and in a plot."""
    file, plot = tmp_path / "load.json", tmp_path / "load.svg"
    before = counted(scripted)
    result = bench(scripted, *flags, *SHORT, "--json", str(file), "--plot", str(plot))
    after = counted(scripted)

    assert (0, "") == (result.returncode, result.stderr)
    written = json.loads(file.read_text())
    assert tuple(b - a for a, b in zip(before, after, strict=True)) == told(written)
    levels = written["levels"]
    assert loads == [(level["max_concurrency"], level["request_rate"]) for level in levels]
    for level in levels:
        assert (6, 0, 48) == (level["completed"], level["failed"], level["total_output_tokens"])
        # the scripted engine takes 10 ms for each token
        assert 10 <= level["mean_ttft_ms"] < level["mean_e2el_ms"] <= 1e3 * level["duration"]
        assert f"{level['request_throughput']:.2f}" in result.stdout
        assert pytest.approx(6 * 40, rel=0.3) == level["total_input_tokens"]
    assert len(levels) == result.stdout.count("Successful requests")
    assert ElementTree.parse(plot).getroot().tag.endswith("svg")


def test_the_same_seed_is_the_same_load(scripted: ServerProcess, tmp_path: Path) -> None:
    """Token for token; another seed is another load."""
    totals = []
    for seed in ("1", "1", "2"):
        file = tmp_path / "load.json"
        bench(scripted, "--concurrency", "3", *SHORT, "--seed", seed, "--json", str(file))
        totals.append(told(json.loads(file.read_text())))

    assert totals[0] == totals[1] != totals[2]


def test_prompts_of_a_file(scripted: ServerProcess, tmp_path: Path) -> None:
    """Lines with something in them, in turn; one without is refused."""
    prompts, file = tmp_path / "prompts.txt", tmp_path / "load.json"
    prompts.write_text("Hello!\n\nHow are you?\n")
    flags = ("--prompt-file", str(prompts), "--num-prompts", "3", "--output-len", "2")
    result = bench(scripted, *flags, "--concurrency", "1", "--json", str(file))
    written = json.loads(file.read_text())

    assert 0 == result.returncode, result.stderr
    first = written["probe"]["prompt_tokens"]
    asked = {"messages": [{"role": "user", "content": "How are you?"}], "max_tokens": 1}
    answer = scripted.post("/v1/chat/completions", asked).json()
    expected = 2 * first + answer["usage"]["prompt_tokens"]
    assert expected == written["levels"][0]["total_input_tokens"]
    prompts.write_text("\n")
    assert "--prompt-file has no prompt" in bench(scripted, *flags).stderr


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (("--api-key", "wrong"), 2, "no valid API key"),
        (("--api-key", "sk-one", "--model", "gpt-7"), 2, "'gpt-7' is not served"),
        (("--url", "http://127.0.0.1:1"), 1, "no server answers"),
        (("--json", "/nowhere/load.json"), 2, "--json cannot be written"),
        (("--concurrency", "1", "--request-rate", "1"), 2, "--request-rate"),
    ],
    ids=["key", "model", "connection", "file", "flags"],
)
def test_a_refusal_ends_it_before_the_load(
    keyed: ServerProcess, flags: tuple[str, ...], code: int, message: str
) -> None:
    """In one line, with what is wrong."""
    url = () if "--url" in flags else ("--url", keyed.url)
    result = subprocess.run(
        [sys.executable, "-m", "streamwell", "bench", *url, *flags],
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=DEADLINE_S,
        check=False,
    )

    assert (code, "") == (result.returncode, result.stdout)
    assert message in result.stderr
    assert 1 == result.stderr.count("\n")


def test_requests_that_fail_are_counted_by_kind(start_server: StartServer, tmp_path: Path) -> None:
    """Beside those that are answered; if none is, the exit code is 1."""
    slow = ("--engine", "scripted", "--scripted-step-s", "0.1", "--max-num-seqs", "1")
    server = start_server(*slow, "--max-queue", "2")
    server.wait_until_ready()
    file = tmp_path / "load.json"
    flags = ("--num-prompts", "8", "--output-len", "4", "--request-rate", "inf")
    result = bench(server, *flags, "--json", str(file))
    (level,) = json.loads(file.read_text())["levels"]

    assert 0 == result.returncode, result.stderr
    assert 8 == level["completed"] + level["failed"]
    assert level["completed"]
    assert {"status 503": level["failed"]} == level["failures"]
    assert f"{level['failed']} failed by status 503" in result.stdout

    result = bench(server, *flags, "--input-len", "100000", "--json", str(file))
    (level,) = json.loads(file.read_text())["levels"]
    assert 1 == result.returncode
    assert "no request of request rate inf was answered" in result.stderr
    assert (0, 8, None) == (level["completed"], level["failed"], level["median_ttft_ms"])


def test_an_interrupt_shows_what_was_measured(scripted: ServerProcess, tmp_path: Path) -> None:
    """The level under way is cut, the next one is not begun, and the exit code is 130."""
    file = tmp_path / "load.json"
    flags = ("--num-prompts", "5000", "--output-len", "8", "--ignore-eos", "--json", str(file))
    requests = scripted.metrics()[REQUESTS]
    process = subprocess.Popen(
        command(scripted, "--concurrency", "2", "4", *flags),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    eventually(lambda: scripted.metrics()[REQUESTS] >= requests + 8, "some were answered")
    process.send_signal(signal.SIGINT)
    shown, errors = process.communicate(timeout=DEADLINE_S)

    assert (130, "") == (process.returncode, errors)
    assert 1 == shown.count("Successful requests")
    written = json.loads(file.read_text())
    (level,) = written["levels"]
    assert written["is_interrupted"]
    assert 0 < level["completed"] < 5000
    assert (0, 5000) == (level["failed"], level["completed"] + level["unfinished"])


def test_a_level_ends_after_its_time(scripted: ServerProcess, tmp_path: Path) -> None:
    """What had not ended is told apart, and is no failure."""
    file = tmp_path / "load.json"
    flags = ("--num-prompts", "5000", "--output-len", "4", "--concurrency", "2")
    result = bench(scripted, *flags, "--max-time-s", "5", "--json", str(file))
    (level,) = json.loads(file.read_text())["levels"]

    assert 0 == result.returncode, result.stderr
    assert 5 <= level["duration"]
    assert (0, 5000) == (level["failed"], level["completed"] + level["unfinished"])
    assert 0 < level["completed"] < 5000
