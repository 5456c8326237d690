"""What the run log costs, and how many can read it: `python -m bench.durability`.

First three of our servers, with their log in memory, on disk, and pressed onto the disk at each
commit: they take turns under the same load, and are compared round by round. Then one
run with very many readers, and as many runs with one reader each; the scripted engine generates
these, so that the server's own work is what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import psutil

from bench.load import drive
from bench.models import model_folder
from bench.report import machine, print_machine
from bench.server import LEVEL_TIMEOUT_S
from streamwell.cli.bench.figures import percentile
from streamwell.store.sqlite import SqliteStore
from training.server_process import Target, running

LEVELS = ("memory", "process", "disk")
STEP_S, READ_TOKENS = 0.05, 200


@contextlib.contextmanager
def serving(folder: Path, data_dir: Path, *flags: str) -> Iterator[str]:
    command = (sys.executable, "-m", "streamwell", "serve", str(folder), *flags)
    target = Target("streamwell", (*command, "--data-dir", str(data_dir)), str(folder))
    with running(target, data_dir.parent / "server.log") as base_url:
        yield base_url


def bytes_per_event(data_dir: Path) -> tuple[float, float]:
    """What an event takes in the database file, before and after ended runs are folded."""
    path = data_dir / "streamwell.db"

    async def fold() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.fold(ended_before_s=time.time())
        await store.close()

    def look(statement: str) -> int:
        with closing(sqlite3.connect(path)) as database:
            return int(database.execute(statement).fetchone()[0])

    def num_bytes() -> int:
        num_pages = look("PRAGMA page_count") - look("PRAGMA freelist_count")
        return num_pages * look("PRAGMA page_size")

    num_events, before = look("SELECT count(*) FROM run_events"), num_bytes()
    asyncio.run(fold())
    return before / num_events, num_bytes() / num_events


def bodies(clients: int, num_tokens: int, seed: str) -> list[dict[str, Any]]:
    """Short prompts and answers of one length: decoding is what writes to the log."""
    return [
        {
            "messages": [{"role": "user", "content": f"Tell me about {seed} and {index}."}],
            "max_tokens": num_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        for index in range(clients)
    ]


def load(base_url: str, clients: int, num_tokens: int, seed: str) -> tuple[float, list[float]]:
    """Tokens per second, and the times to the first token in ms."""
    requests = bodies(clients, num_tokens, seed)
    answers, wall_s = asyncio.run(drive(base_url, requests, clients, timeout_s=LEVEL_TIMEOUT_S))
    tokens = sum(answer.completion_tokens for answer in answers)
    return tokens / wall_s, [1e3 * answer.ttft_s for answer in answers]


def measure_cost(folder: Path, clients: int, num_tokens: int, rounds: int, scratch: Path) -> None:
    """Three servers side by side, under load in turn; prints what each level gives up."""
    tok_s: dict[str, list[float]] = {level: [] for level in LEVELS}
    ttft_ms: dict[str, list[float]] = {level: [] for level in LEVELS}
    with contextlib.ExitStack() as servers:
        urls = {}
        for level in LEVELS:
            # nothing is folded before the end of its grace
            flags = ("--durability", level, "--resume-grace-s", "86400")
            server = serving(folder, scratch / level, *flags)
            urls[level] = servers.enter_context(server)
            load(urls[level], clients, 8, "warm up")
        for index in range(rounds):
            for level in LEVELS[index % 3 :] + LEVELS[: index % 3]:
                rate, first_ms = load(urls[level], clients, num_tokens, str(index))
                tok_s[level].append(rate)
                ttft_ms[level] += first_ms
    for level in LEVELS:
        pairs = zip(tok_s[level], tok_s["memory"], strict=True)
        ratios = [ours / memory for ours, memory in pairs]
        size = ""
        if level != "memory":
            size = "{:.0f} bytes/event, {:.0f} folded".format(*bytes_per_event(scratch / level))
        print(
            f"{level:8} {statistics.median(tok_s[level]):7.1f} tok/s, "
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f}) of memory's; "
            f"first token p50 {percentile(ttft_ms[level], 50):.0f} ms, "
            f"p99 {percentile(ttft_ms[level], 99):.0f} ms  {size}",
            flush=True,
        )


async def follow(port: int, path: str, started: asyncio.Event) -> int:
    """Read a stream to its end; returns how many frames with text it had."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
    writer.write(head.encode())
    started.set()
    count = 0
    while not (line := await reader.readline()).startswith(b"event: done"):
        if not line:
            raise RuntimeError("a stream ended before its run")
        count += line.startswith(b'data: {"text"')
    writer.close()
    return count


async def crowd(base_url: str, paths: list[str]) -> tuple[int, float]:
    """Read all of these streams at once; returns frames with text, and the seconds it took."""
    port = int(base_url.rpartition(":")[2])
    started = time.perf_counter()
    counts = await asyncio.gather(*(follow(port, path, asyncio.Event()) for path in paths))
    return sum(counts), time.perf_counter() - started


def measure_readers(readers: int, scratch: Path) -> None:
    """Print what many readers of one run cost, and many runs with one reader each."""
    flags = ("--engine", "scripted", "--scripted-step-s", str(STEP_S), "--max-num-seqs")
    query = f"max_tokens={READ_TOKENS}&seed=1&raw=true"
    for name in ("one run", "a run each"):
        data_dir = scratch / name.replace(" ", "-")
        args = (*flags, str(readers), "--max-num-batched-tokens", str(readers))
        with serving(Path("brooklet"), data_dir, *args, "--log-level", "warning") as base_url:
            (server,) = psutil.Process().children()
            if name == "one run":
                body = {"prompt": "Hello", "max_tokens": READ_TOKENS, "background": True}
                run = httpx2.post(f"{base_url}/v1/runs", json=body, trust_env=False).json()
                paths = [run["events_url"]] * readers
            else:
                paths = [f"/v1/stream?prompt=Hello&{query}"] * readers
            before = server.cpu_times()
            frames, wall_s = asyncio.run(crowd(base_url, paths))
            after = server.cpu_times()
        cpu_s = after.user + after.system - before.user - before.system
        print(
            f"{readers} readers, {name}: {frames} frames in {wall_s:.1f} s (the engine alone takes "
            f"{STEP_S * READ_TOKENS:.0f} s), {1e6 * cpu_s / frames:.0f} us of server CPU per frame"
        )


def main() -> None:
    """Measure both, and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.durability", description=__doc__)
    parser.add_argument("--model", default="smol135", help="a name of bench.models, or a folder")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--readers", type=int, default=1000)
    args = parser.parse_args()
    print_machine(machine() | {"model": args.model})
    with tempfile.TemporaryDirectory(prefix="streamwell-bench-") as scratch:
        if args.rounds:
            folder = model_folder(args.model)
            measure_cost(folder, args.clients, args.tokens, args.rounds, Path(scratch))
        if args.readers:
            measure_readers(args.readers, Path(scratch))


if __name__ == "__main__":
    main()
