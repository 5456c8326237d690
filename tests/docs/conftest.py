"""The server of `make serve`, for the commands of the README and the guide."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

from commands import free_port, serving
from guide import ROOT


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`make serve`, as the README has it, on a free port."""
    port = free_port()
    settings = {
        "STREAMWELL_PORT": str(port),
        "STREAMWELL_DATA_DIR": str(tmp_path_factory.mktemp("data")),
    }
    with serving(["make", "serve"], ROOT, port, settings) as address:
        yield address
