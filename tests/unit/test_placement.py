"""Where a model computes."""

from __future__ import annotations

import pytest

from streamwell.core.errors import LoadError
from streamwell.engine.placement import device_of


@pytest.mark.parametrize("name", ["mps", "mps:0"])
def test_a_device_without_float64_is_refused(name: str) -> None:
    """Draws need it; else the first sampled request would end the engine."""
    with pytest.raises(LoadError, match="--device mps"):
        device_of(name)


def test_a_device_is_taken_by_its_name() -> None:
    """With its number, if it has one."""
    assert ["cpu", "cuda"] == [device_of(name).type for name in ("cpu", "cuda:1")]
