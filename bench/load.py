"""Streaming chat requests from a fixed number of clients, all of which must be answered.

The load generator is that of `streamwell bench`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx2

from streamwell.cli.bench.drive import closed_loop
from streamwell.cli.bench.drive import drive as drive_loop
from streamwell.cli.bench.recording import Answer, Recording


async def drive(
    base_url: str, bodies: Sequence[dict[str, Any]], concurrency: int, *, timeout_s: float
) -> tuple[list[Answer], float]:
    """Send all bodies from `concurrency` clients; returns the answers and the seconds it took.

    Raises:
        RuntimeError: a request failed.
        TimeoutError: it took longer than `timeout_s`.
    """
    recording = Recording(len(bodies))
    # llama-server closes idle connections without a word: each request gets one of its own
    limits = httpx2.Limits(max_connections=concurrency, max_keepalive_connections=0)
    async with httpx2.AsyncClient(
        base_url=base_url, timeout=timeout_s, limits=limits, trust_env=False
    ) as client:
        loop = closed_loop(bodies, concurrency)
        await drive_loop(client, "/v1/chat/completions", loop, recording, max_time_s=timeout_s)
    if recording.failures:
        raise RuntimeError(f"a request failed: {recording.failures[0]}")
    if recording.num_unfinished:
        raise TimeoutError(f"{recording.num_unfinished} requests had not ended after {timeout_s} s")
    return recording.answers, recording.duration_s
