"""What is heard of a run outside: lines in the log with its id, and metrics; never its words."""

from __future__ import annotations

import time
from collections.abc import Iterable

import structlog

from streamwell.core.types import RunEvent
from streamwell.service.run import Run
from streamwell.telemetry import Metrics

log = structlog.get_logger()


def began(run: Run, sent_s: float, queue_s: float) -> None:
    """The engine has brought the first of a choice.

    The engine heard of it `sent_s` seconds after the run was accepted, and had a place for it
    `queue_s` later.
    """
    queue_s += sent_s
    if run.queue_s is None and not run.is_continued:
        run.queue_s = queue_s
        run.first_token_s = time.monotonic() - run.started_s
        log.info("run begins", run_id=run.spec.run_id, queue_s=round(queue_s, 4))


def left(run: Run, metrics: Metrics) -> None:
    """Its last reader is gone before its end."""
    metrics.disconnects.inc()
    log.info("run has lost its last reader", run_id=run.spec.run_id)


def ended(run: Run, cut_short: Iterable[RunEvent], metrics: Metrics) -> None:
    """It has its last word; `cut_short` are the last words of choices that did not finish."""
    for event in cut_short:
        metrics.finished.labels(str(event.finish_reason)).inc()
    duration_s = time.monotonic() - run.started_s
    metrics.e2e_latency_s.observe(duration_s)
    times = {"duration_s": round(duration_s, 4)}
    num_tokens = run.usage().completion_tokens
    if not run.is_continued and run.queue_s is not None and run.first_token_s is not None:
        times["time_to_first_token_s"] = round(run.first_token_s, 4)
        times["tokens_per_s"] = round(num_tokens / max(duration_s - run.queue_s, 1e-6), 1)
    log.info(
        "run ends",
        run_id=run.spec.run_id,
        reason=",".join(sorted(run.finish_reasons)),
        completion_tokens=num_tokens,
        **times,
    )
