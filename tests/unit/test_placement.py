"""Where a model computes."""

from __future__ import annotations

import weakref

import pytest
import torch

from streamwell.core.errors import LoadError
from streamwell.engine.messages import DEFAULT_KV_CACHE_BYTES
from streamwell.engine.placement import PlacedWeights, default_kv_cache_bytes, device_of


@pytest.mark.parametrize("name", ["mps", "mps:0"])
def test_a_device_without_float64_is_refused(name: str) -> None:
    """Draws need it; else the first sampled request would end the engine."""
    with pytest.raises(LoadError, match="--device mps"):
        device_of(name)


def test_a_device_is_taken_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its number, if it has one; a GPU must be there."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    assert ["cpu", "cuda"] == [device_of(name).type for name in ("cpu", "cuda:1")]
    with pytest.raises(LoadError, match="--device 'cuda:2' is not there: PyTorch finds 2"):
        device_of("cuda:2")


@pytest.mark.parametrize("name", ["", "gpu", "meta", "cuda:x"])
def test_what_is_no_device_is_refused_by_its_name(name: str) -> None:
    """It is the flag that is wrong, and not the model."""
    with pytest.raises(LoadError, match=f"--device '{name}'"):
        device_of(name)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a build of PyTorch for CPUs alone."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(LoadError, match="--device 'cuda' is not there: PyTorch finds 0"):
        device_of("cuda")


def test_a_cache_on_a_gpu_has_most_of_what_is_free_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Main memory has other uses, so a cache there has a fixed limit."""
    gpu = torch.device("cuda:1")
    free_bytes = {gpu: 10 << 30}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free_bytes[device], 80 << 30))

    assert default_kv_cache_bytes(gpu) == 7 << 30
    assert default_kv_cache_bytes(torch.device("cpu")) == DEFAULT_KV_CACHE_BYTES


def test_weights_are_placed_one_by_one() -> None:
    """What is held is placed once, and what nobody holds is not kept: a model is there once."""
    saved = {"a": torch.ones(2), "b": torch.ones(3)}
    placed = PlacedWeights(saved, torch.device("cpu"), torch.bfloat16)
    held = placed["a"]

    assert held is placed["a"]
    assert (torch.bfloat16, ["a", "b"]) == (held.dtype, list(placed))
    dropped = weakref.ref(placed["b"])
    assert dropped() is None
    assert placed.get("c") is None
