"""What the golden tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from engine_rig import load_model
from tiny_models import build

from streamwell.engine.loader import LoadedModel


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Loading sets the number of threads for the process; it is put back."""
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="module", params=["llama", "mistral-window"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, with and without a sliding window."""
    return build(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module", params=["native", "torch", "transformers"])
def model(folder: Path, request: pytest.FixtureRequest) -> LoadedModel:
    """It, on every decoder."""
    return load_model(folder, request.param)
