"""What an engine with a native model does while it is idle."""

from __future__ import annotations

import pytest
from engine_rig import DEVICE, load_model

from streamwell.engine import loader
from streamwell.models import brooklet_path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(DEVICE != "cpu", reason="the helper computes on a CPU"),
]

MIB = 1 << 20


@pytest.mark.parametrize(("free_mib", "steps"), [(1000, range(6, 9)), (4, range(1, 4))])
def test_a_small_model_takes_little(
    monkeypatch: pytest.MonkeyPatch, free_mib: int, steps: range
) -> None:
    """Memory for as much cache as the weights have (11 MB), and for a quarter of what is free.

    The cache itself has 64 MiB.
    """
    monkeypatch.setattr(loader, "available_bytes", lambda: free_mib * MIB)
    model = load_model(brooklet_path(), "native", kv_cache_bytes=64 * MIB, max_model_len=4096)
    assert sum(1 for _ in model.idle_work) in steps


def test_pytorchs_models_have_none() -> None:
    """They have no cache of that kind."""
    assert not list(load_model(brooklet_path(), "torch").idle_work)
