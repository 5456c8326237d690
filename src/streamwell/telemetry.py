"""Logging set-up and metric instruments. No logic."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TextIO, cast

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from streamwell.core.engine_state import EngineStats

#: Buckets of the OpenTelemetry GenAI conventions, in seconds.
DURATION_BUCKETS = tuple(0.01 * 2**power for power in range(14))
TOKEN_BUCKETS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)


class _StandardError:
    """Where log lines go; one that cannot be written is lost, and whoever logs does not hear of it.

    The disk that the log is on may be full.
    """

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()


def configure_logging(level: str, *, as_json: bool) -> None:
    """Log to standard error, one line per event; prompts and texts are never logged."""
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    if as_json:  # which is ASCII without controls
        processors.append(structlog.processors.JSONRenderer())
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), sort_keys=False)
        processors += [_written_out, renderer]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _StandardError())),
        cache_logger_on_first_use=True,
    )


def _written_out(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Clients choose paths and names of fields: what a terminal would obey is written out."""
    return {k: _printable(v) if isinstance(v, str) else v for k, v in event.items()}


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


#: What the engines of all models say now, by the names of the models.
EngineStatsOf = Callable[[], Mapping[str, EngineStats]]


class Metrics:
    """All instruments of a server, in a registry of its own."""

    def __init__(self, version: str, engine_stats: EngineStatsOf) -> None:
        self._registry = registry = CollectorRegistry()
        registry.register(_EngineCollector(version, engine_stats))
        self.prompt_tokens = Counter(
            "streamwell_prompt_tokens", "Prompt tokens of accepted runs.", registry=registry
        )
        self.generation_tokens = Counter(
            "streamwell_generation_tokens", "Generated tokens.", registry=registry
        )
        self.finished = Counter(
            "streamwell_request_success",
            "Ended choices by reason.",
            ["finished_reason"],
            registry=registry,
        )
        self.rejected = Counter(
            "streamwell_requests_rejected", "Refused requests.", ["reason"], registry=registry
        )
        self.disconnects = Counter(
            "streamwell_client_disconnects",
            "Runs that their last reader left before the end.",
            registry=registry,
        )
        self.continued = Counter(
            "streamwell_runs_continued",
            "Interrupted runs that went on: a reader came back, an engine died, a server died.",
            ["after"],
            registry=registry,
        )
        self.time_to_first_token_s = self._histogram(
            "time_to_first_token", "Acceptance to first text.", DURATION_BUCKETS
        )
        self.inter_token_latency_s = self._histogram(
            "inter_token_latency", "Between deltas of one choice.", TOKEN_BUCKETS
        )
        self.e2e_latency_s = self._histogram(
            "e2e_request_latency", "Acceptance to end of a run.", DURATION_BUCKETS
        )

    def render(self) -> bytes:
        """The Prometheus text exposition."""
        return generate_latest(self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(
            f"streamwell_{name}_seconds", text, buckets=buckets, registry=self._registry
        )


#: Gauges and counters of engines: their names, what they are, and where they come from.
_GAUGES: tuple[tuple[str, str, Callable[[EngineStats], float]], ...] = (
    ("requests_running", "Sequences in the batch.", lambda stats: stats.num_running),
    ("requests_waiting", "Sequences waiting for a place.", lambda stats: stats.num_waiting),
    (
        "kv_cache_usage_ratio",
        "Share of KV cache blocks in use, 0 to 1.",
        lambda stats: stats.num_used_blocks / max(1, stats.num_blocks),
    ),
)
_COUNTERS: tuple[tuple[str, str, Callable[[EngineStats], float]], ...] = (
    ("preemptions", "Preempted sequences.", lambda stats: stats.num_preemptions),
    ("engine_steps", "Engine steps.", lambda stats: stats.num_steps),
    (
        "prefix_cache_queries",
        "Prompt tokens looked for in the prefix cache.",
        lambda stats: stats.num_prefix_queried_tokens,
    ),
    (
        "prefix_cache_hits",
        "Prompt tokens found in the prefix cache.",
        lambda stats: stats.num_prefix_hit_tokens,
    ),
    ("spec_decode_draft_tokens", "Guessed tokens.", lambda stats: stats.num_draft_tokens),
    ("spec_decode_accepted_tokens", "Right guesses.", lambda stats: stats.num_accepted_tokens),
)


class _EngineCollector:
    """Reads the engines' gauges and counters, by model, when they are asked for."""

    def __init__(self, version: str, engine_stats: EngineStatsOf) -> None:
        self._version = version
        self._engine_stats = engine_stats

    def collect(self) -> Iterable[Metric]:
        yield InfoMetricFamily(
            "streamwell_build", "The running version.", value={"version": self._version}
        )
        engines = self._engine_stats()
        for family, rows in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
            for name, text, value_of in rows:
                metric = family(f"streamwell_{name}", text, labels=["model_name"])
                for model_name, stats in engines.items():
                    metric.add_metric([model_name], value_of(stats))
                yield metric
