"""Lines with figures, which tests print when all is over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_LINES: list[str] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _LINES:
        terminalreporter.section("figures")
        for line in _LINES:
            terminalreporter.write_line(line)


@pytest.fixture
def summary(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Print a line with a test's figures when all is over."""

    def add(*figures: object) -> None:
        _LINES.append(f"{request.node.name}: {', '.join(map(str, figures))}")

    return add
