"""What a streamed token costs the server process: `python -m bench.streaming`.

The server is ours as it always is (run log on disk, uvicorn, the built-in model's tokenizer), in a
process of its own; the engine process behind it computes nothing, and sends each stream a token at
each step. So all CPU time of the server process is what stands between an engine and its clients:
messages, detokenizing, log, JSON, HTTP. The load generator runs in a third process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import queue
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from bench.load import drive
from bench.report import Column, machine, print_machine, print_summary, summarize, write_json
from bench.server import LEVEL_TIMEOUT_S
from training.server_process import Target, running

COLUMNS = {
    "cpu_us": Column("server CPU us/token", more_is_better=False),
    "core_events_s": Column("events/s of one core", more_is_better=True),
    "tokens_per_event": Column("tokens/event", more_is_better=False),
    "tok_s": Column("tok/s", more_is_better=True),
}
#: Ids of the built-in model's tokenizer that stand for ordinary pieces of words.
FIRST_TOKEN_ID, NUM_TOKEN_IDS = 300, 500


def engine(fd: int, step_s: float) -> None:
    """The engine process: each step gives every request its next token."""
    from streamwell.core.engine_state import EngineInfo, EngineStats
    from streamwell.core.types import FinishReason
    from streamwell.engine.messages import Loaded, StepOutput
    from streamwell.engine.process import Connection
    from streamwell.engine.sequence import SequenceOutput

    connection = Connection(fd)
    connection.inbox.get()  # the configuration
    size, none = 1 << 20, "none"
    info = EngineInfo(
        max_model_len=size, vocab_size=size, num_blocks=1, block_size=size, dtype=none, device=none
    )
    connection.send(Loaded(info))
    remaining: dict[str, int] = {}
    for _ in beats(step_s):
        take_commands(connection.inbox, remaining)
        outputs = []
        for request_id in list(remaining):
            count = remaining[request_id] = remaining[request_id] - 1
            token_id = FIRST_TOKEN_ID + 7 * count % NUM_TOKEN_IDS
            reason = None if count else FinishReason.LENGTH
            outputs.append(SequenceOutput(request_id, (token_id,), reason))
            if not count:
                del remaining[request_id]
        connection.send(StepOutput(tuple(outputs), EngineStats(num_running=len(outputs))))


def take_commands(inbox: queue.SimpleQueue[Any], remaining: dict[str, int]) -> None:
    """Take all that has come; waits for some, but not for long, while there are no requests."""
    from streamwell.engine.messages import Add
    from streamwell.engine.process import HEARTBEAT_S

    with contextlib.suppress(queue.Empty):
        message = inbox.get(block=not remaining, timeout=HEARTBEAT_S)
        while True:
            for command in message.commands:
                if isinstance(command, Add):
                    remaining[command.request.request_id] = command.request.sampling.max_tokens
                else:
                    remaining.pop(command.request_id, None)
            message = inbox.get_nowait()


def beats(step_s: float) -> Iterator[None]:
    """A steady clock; a beat that is late is not made up for."""
    next_s = time.monotonic()
    while True:
        next_s = max(next_s + step_s, time.monotonic())
        time.sleep(max(0.0, next_s - time.monotonic()))
        yield


def serve(step_s: str, data_dir: str, port: int) -> None:
    """The server process: `streamwell serve`, but for the engine process behind it."""
    from streamwell.cli.serving import serve as serve_on
    from streamwell.engine.launch import EngineProcess
    from streamwell.models import brooklet_path
    from streamwell.settings import Settings

    ours, theirs = socket.socketpair()
    with theirs:
        fd = theirs.fileno()
        command = [sys.executable, "-m", "bench.streaming", "engine", str(fd), step_s]
        process = subprocess.Popen(command, pass_fds=(fd,), stdin=subprocess.DEVNULL)
    scripted = EngineProcess(process, ours)
    settings = Settings(data_dir=Path(data_dir), port=port, log_level="warning")
    try:
        folders = {"brooklet": brooklet_path()}
        serve_on(settings, folders, scripted, socket.create_server(("127.0.0.1", port)))
    finally:
        scripted.end()


def measure(streams: int, num_tokens: int, step_s: float, scratch: Path) -> dict[str, float]:
    """Start a server, warm it up, and account for its CPU time under one level of load."""
    body = {
        "messages": [{"role": "user", "content": "Hello!"}],
        "max_tokens": num_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    command = (sys.executable, "-m", "bench.streaming", "serve", str(step_s), str(scratch))
    with running(Target("streamwell", command), scratch / "server.log") as base_url:
        (server,) = psutil.Process().children()
        load = [body] * streams
        warm_up = [{**body, "max_tokens": 64}] * streams
        asyncio.run(drive(base_url, warm_up, streams, timeout_s=LEVEL_TIMEOUT_S))
        before = server.cpu_times()
        answers, wall_s = asyncio.run(drive(base_url, load, streams, timeout_s=LEVEL_TIMEOUT_S))
        after = server.cpu_times()
    cpu_s = after.user + after.system - before.user - before.system
    tokens = sum(answer.completion_tokens for answer in answers)
    events = sum(len(answer.text_times_s) for answer in answers)
    return {
        "cpu_us": 1e6 * cpu_s / tokens,
        "core_events_s": events / cpu_s,
        "tokens_per_event": tokens / events,
        "tok_s": tokens / wall_s,
    }


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.streaming", description=__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--steps-per-s", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each level and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write everything to this file")
    return parser.parse_args()


def main() -> None:
    """Measure, and print what was measured."""
    args = parse_args()
    num_tokens = round(args.seconds * args.steps_per_s)
    facts = machine() | {"steps_per_s": args.steps_per_s, "tokens_per_stream": num_tokens}
    print_machine(facts)
    results: list[dict[str, Any]] = []
    for index in range(args.rounds):
        for streams in args.streams:
            with tempfile.TemporaryDirectory(prefix="streamwell-bench-") as scratch:
                figures = measure(streams, num_tokens, 1 / args.steps_per_s, Path(scratch))
            case = {"round": index, "case": f"{streams} streams", "contender": "streamwell"}
            results.append(case | figures)
            print("  ".join(f"{key}={figures[key]:.2f}" for key in COLUMNS), flush=True)
    summary = summarize(results, COLUMNS)
    print_summary(summary, COLUMNS)
    if args.json:
        write_json(args.json, {"machine": facts, "summary": summary, "runs": results})


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["engine", fd, step_s]:
            engine(int(fd), float(step_s))
        case ["serve", step_s, data_dir, "--host", _, "--port", port]:
            serve(step_s, data_dir, int(port))
        case _:
            main()
