"""Processors to compute with: in a container, no more than its share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamwell.models.cores import num_cores


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("max 100000", 64),
        ("400000 100000", 4),
        ("150000 100000", 2),
        ("50000 100000", 1),
        ("9900000 100000", 64),
        (None, 64),
        ("", 64),
    ],
)
def test_a_container_has_its_share(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str | None, expected: int
) -> None:
    """Of time on the machine's processors, rounded up; all of them where nothing says less."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(64)))
    if limit is not None:
        (tmp_path / "cpu.max").write_text(f"{limit}\n")

    assert expected == num_cores(tmp_path)
