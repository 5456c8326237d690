"""Lines with figures, which tests print when all is over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_FIGURES = "figures"
_LINES: list[str] = []


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
