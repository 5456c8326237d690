"""`streamwell bench`: a server under each level of load in turn."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import httpx2
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from streamwell import __version__
from streamwell.cli.address import Address
from streamwell.cli.bench.drive import Loop, drive
from streamwell.cli.bench.options import BenchOptions
from streamwell.cli.bench.plot import check_plot, write_plot
from streamwell.cli.bench.recording import Recording
from streamwell.cli.bench.report import Result, as_json, print_comparison, print_level
from streamwell.cli.bench.workload import Workload
from streamwell.cli.remote import CONNECT_S, connected, transport_of, wait_until_ready
from streamwell.core.errors import InvalidRequest

#: As shells count a process that SIGINT ended.
_INTERRUPTED = 130


def run(address: Address, options: BenchOptions) -> None:
    """Measure all levels; print, and write what is asked for.

    The process ends with 1 if there is no server, or a level has no answer, and with 130 after an
    interrupt, which ends the level under way; what was measured until then is shown and written.

    Raises:
        InvalidRequest: flags contradict each other, a file cannot be read or written, or the
            server refuses a request like those to come.
    """
    levels = options.levels()
    _check_files(options)
    with connected(address) as client:
        wait_until_ready(client)
        workload = Workload(client, options)
    results: list[Result] = []
    is_interrupted = False
    for index, level in enumerate(levels):
        recording = Recording(options.num_prompts)
        try:
            loop = workload.loop(level, index)
            _measure(address, workload.path, loop, level.name, recording, options.max_time_s)
        except KeyboardInterrupt:
            is_interrupted = True
        results.append(Result(level, recording))
        print_level(results[-1])
        if is_interrupted:
            break
    print_comparison(results)
    _write(results, options, workload, is_interrupted=is_interrupted)
    _exit(results, is_interrupted=is_interrupted)


def _check_files(options: BenchOptions) -> None:
    """Raises `InvalidRequest` for files that could not be written when all is measured."""
    for flag, path in (("--json", options.json), ("--plot", options.plot)):
        if path and not _is_writable(path):
            raise InvalidRequest(f"{flag} cannot be written: {path}")
    if options.plot:
        check_plot(options.plot)


def _is_writable(path: Path) -> bool:
    """Whether it is, or could become, a file that this process may write."""
    if path.exists():
        return not path.is_dir() and os.access(path, os.W_OK)
    parent = path.absolute().parent
    return parent.is_dir() and os.access(parent, os.W_OK)


def _measure(
    address: Address, path: str, loop: Loop, name: str, recording: Recording, max_time_s: float
) -> None:
    """Raises `KeyboardInterrupt`; the recording has what was measured until then."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    progress = Progress(
        *columns,
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )

    async def measure() -> None:
        # idle connections may be closed by the server without a word: each request has its own
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx2.AsyncClient(
            base_url=address.base,
            headers=address.headers,
            timeout=httpx2.Timeout(CONNECT_S, read=None),
            limits=limits,
            **transport_of(address.base),
        ) as client:
            await drive(
                client,
                path,
                loop,
                recording,
                max_time_s=max_time_s,
                on_end=lambda: progress.advance(bar),
            )

    with progress:
        bar = progress.add_task(name, total=recording.num_prompts)
        asyncio.run(measure())


def _write(
    results: Sequence[Result], options: BenchOptions, workload: Workload, *, is_interrupted: bool
) -> None:
    """Raises `InvalidRequest`."""
    of_all = {
        "streamwell": __version__,
        "is_interrupted": is_interrupted,
        "probe": workload.probe_tokens,
    }
    of_each = {
        "date": datetime.now(UTC).strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": "openai-chat" if options.endpoint == "chat" else "openai",
        "model_id": workload.model,
    }
    try:
        if options.json:
            text = as_json(results, options, of_all, of_each)
            options.json.write_text(text, encoding="utf-8")
        if options.plot:
            write_plot(options.plot, results)
    except OSError as error:
        raise InvalidRequest(f"a file cannot be written: {error}") from None


def _exit(results: Sequence[Result], *, is_interrupted: bool) -> None:
    if is_interrupted:
        sys.exit(_INTERRUPTED)
    for result in results:
        if not result.recording.answers:
            sys.exit(f"streamwell: no request of {result.level.name} was answered")
