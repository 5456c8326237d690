"""Chaos: a server that all scenarios of a process share, and seeds."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

from ops import Lives

SEED = int(os.environ.get("CHAOS_SEED") or random.randrange(1 << 32))
os.environ["CHAOS_SEED"] = str(SEED)  # for workers that are started after it was printed


def pytest_report_header() -> str:
    return f"chaos: CHAOS_SEED={SEED}"


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> random.Random:
    """Chance, another for each test; `CHAOS_SEED` brings it back."""
    print(f"CHAOS_SEED={SEED}")  # noqa: T201 - beside the failure, wherever the test has run
    return random.Random(f"{SEED} {request.node.name}")


@pytest.fixture(scope="session")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    """The built-in model with default settings; whoever kills it revives it."""
    with closing(Lives(tmp_path_factory.mktemp("chaos"))) as lives:
        yield lives
