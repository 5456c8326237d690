"""Whether the cache can hold a sequence is known before a model is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_rig import MAX_MODEL_LEN, load_model
from tiny_models import build

from streamwell.core.errors import LoadError

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("model_impl", ["native", "torch"])
def test_a_cache_that_is_too_small_is_told_before_weights_are_read(
    tmp_path: Path, model_impl: str
) -> None:
    """To the token: of a large model it would take minutes else."""
    folder = build("llama", tmp_path)
    enough = MAX_MODEL_LEN * load_model(folder, model_impl).runner.model.bytes_per_token
    told: list[float] = []

    load_model(folder, model_impl, kv_cache_bytes=enough)
    with pytest.raises(LoadError, match="cannot hold one sequence"):
        load_model(
            folder,
            model_impl,
            kv_cache_bytes=enough - 1,
            report=lambda _stage, done: told.append(done),
        )

    assert [0.1] == told
