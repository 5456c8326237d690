"""`streamwell serve --ray`: runs the application on Ray Serve until stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping

from streamwell.cli.banner import greet
from streamwell.settings import Settings
from streamwell.telemetry import configure_logging
from streamwell.wiring.ray_start import cluster, run


def serve_on_ray(settings: Settings, models: Mapping[str, str]) -> None:
    """Serve models by their names until a signal comes; runs that are live then are cut.

    Raises:
        InvalidRequest: Ray is missing.
        LoadError: a model cannot be loaded.
    """
    configure_logging(settings.log_level, as_json=settings.log_json)
    is_over = threading.Event()
    with cluster():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: is_over.set())
        run(settings, models)
        greet(settings)
        is_over.wait()
