"""What the pure half of the engine knows of adapters: a number, which keeps caches apart."""

from __future__ import annotations

from scheduler_bench import Bench, a_seq

from streamwell.core.types import SamplingParams
from streamwell.engine.sequence import Sequence


def keys(adapter: int, salt: str) -> tuple[bytes, ...]:
    sampling = SamplingParams(max_tokens=1)
    seq = Sequence("r", list(range(9)), sampling, cache_salt=salt, adapter=adapter)
    return tuple(seq.block_keys(9, 1))


def test_blocks_are_named_by_adapter_and_salt() -> None:
    """No two of them make the same names, whatever the salts look like; equal ones do."""
    pairs = [(0, ""), (1, ""), (11, ""), (0, "1"), (1, "1"), (0, "1:"), (1, "1:"), (0, ":1")]
    names = [name for pair in pairs for name in keys(*pair)]

    assert 9 * len(pairs) == len(set(names))
    assert keys(1, "a") == keys(1, "a")


def test_requests_of_an_adapter_are_those_that_live() -> None:
    """Running or waiting, not ended; whoever has no adapter belongs to number 0."""
    seqs = [a_seq(name) for name in "abcde"]
    for seq in seqs[1:4]:
        seq.adapter = 7
    bench = Bench(seqs, max_num_seqs=2)
    bench.plan()
    bench.scheduler.abort("c")

    assert ["b", "d"] == bench.scheduler.requests_of(7)
    assert ["a", "e"] == bench.scheduler.requests_of(0)
    assert [] == bench.scheduler.requests_of(8)
