"""How large the KV cache is."""

from __future__ import annotations

import pytest

from streamwell.core.errors import LoadError
from streamwell.engine import cache_size
from streamwell.engine.cache_size import CacheSize
from streamwell.engine.messages import EngineConfig

#: Bytes of a token in the model's cache and in its draft's, and of a block of both.
TOKEN, DRAFTED = 100, 20
BLOCK = 16 * (TOKEN + DRAFTED)
#: Blocks of one sequence: two contexts of 7.
PER_SEQ = 14
FREE = 20 * BLOCK


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_size, "available_bytes", lambda: FREE)


def of(given: int | None, *, max_model_len: int = 100, on_cpu: bool = True) -> CacheSize:
    config = EngineConfig(
        model_path="model",
        device="cpu",
        dtype="float32",
        max_model_len=max_model_len,
        max_num_seqs=3,
        max_num_batched_tokens=None,
        kv_cache_bytes=given,
        block_size=16,
        num_threads=1,
    )
    return CacheSize(config, max_model_len, 2, DRAFTED, on_cpu)


@pytest.mark.parametrize(
    ("given", "default", "num_blocks"),
    [
        (None, 0, PER_SEQ),
        (None, 17 * BLOCK + 1, 17),
        (None, 1000 * BLOCK, 3 * PER_SEQ),
        (PER_SEQ * BLOCK, 1000 * BLOCK, PER_SEQ),
        (18 * BLOCK - 1, 0, 17),
        (1000 * BLOCK, 0, 3 * PER_SEQ),
    ],
)
def test_it_holds_a_sequence_and_no_more_than_all(
    given: int | None, default: int, num_blocks: int
) -> None:
    """What is given, or the default; one sequence at the least, all of them at the most."""
    assert num_blocks == of(given).num_blocks(TOKEN, default)


def test_what_is_given_must_hold_a_sequence() -> None:
    """To the byte."""
    with pytest.raises(LoadError, match="cannot hold one sequence of 100 tokens"):
        of(PER_SEQ * BLOCK - 1).check(TOKEN)


def test_a_sequence_must_fit_into_the_memory_that_is_free() -> None:
    """Where nothing is said a context takes what it takes; a GPU's memory says so by itself."""
    long = 1000

    with pytest.raises(LoadError, match=r"takes \d+ MiB of KV cache.*lower --max-model-len"):
        of(None, max_model_len=long).check(TOKEN)
    of(None, max_model_len=long, on_cpu=False).check(TOKEN)
    of(FREE * 100, max_model_len=long).check(TOKEN)  # who says so is checked before the load
