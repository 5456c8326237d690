"""What all tests share: Ctrl-C, and lines with figures that are printed when all is over."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable

import pytest

_FIGURES = "figures"
_LINES: list[str] = []


def pytest_configure() -> None:
    """Have Ctrl-C mean something to programs that tests start, also where tests run in background.

    A shell has what it starts there ignore it, and so would all that comes from it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Spare garbage collection what was imported, as a server does: it outlives every test."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect lines where all is printed: a test may have run in another process."""
    if report.when == "call":
        _LINES.extend(str(line) for name, line in report.user_properties if name == _FIGURES)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _LINES:
        terminalreporter.section(_FIGURES)
        for line in _LINES:
            terminalreporter.write_line(line)


@pytest.fixture
def summary(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Print a line with a test's figures when all is over."""

    def add(*figures: object) -> None:
        line = f"{request.node.name}: {', '.join(map(str, figures))}"
        request.node.user_properties.append((_FIGURES, line))

    return add
