"""Whether the cache can hold a sequence is known before a model is loaded."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tiny_models import build

from streamwell.core.errors import LoadError
from streamwell.engine.loader import load
from streamwell.engine.messages import EngineConfig

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("model_impl", ["native", "torch"])
def test_a_cache_that_is_too_small_is_told_before_weights_are_read(
    tmp_path: Path, model_impl: str
) -> None:
    """To the token: of a large model it would take minutes else."""
    config = EngineConfig(
        model_path=str(build("llama", tmp_path)),
        device="cpu",
        dtype="float32",
        max_model_len=64,
        max_num_seqs=1,
        max_num_batched_tokens=1,
        kv_cache_bytes=None,
        block_size=16,
        num_threads=1,
        model_impl=model_impl,
    )
    enough = 64 * load(config, lambda _stage, _done: None).runner.model.bytes_per_token
    told: list[float] = []

    load(msgspec.structs.replace(config, kv_cache_bytes=enough), lambda _stage, _done: None)
    with pytest.raises(LoadError, match="cannot hold one sequence"):
        load(
            msgspec.structs.replace(config, kv_cache_bytes=enough - 1),
            lambda _stage, done: told.append(done),
        )

    assert [0.1] == told
