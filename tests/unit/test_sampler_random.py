"""The counter-based random numbers behind every draw."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from streamwell.engine.sampler import uniform


def test_random_numbers_are_those_of_splitmix64() -> None:
    """Seed 0 mixes to 0, so its stream is the published one of SplitMix64 from state 0."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]

    assert [(n >> 12) / 2**52 for n in published] == [uniform(0, i) for i in range(4)]


@pytest.mark.parametrize("along", ["index", "seed"])
def test_random_numbers_are_uniform(along: str) -> None:
    """10,000 numbers of one seed, or of as many seeds, fill [0, 1) evenly and independently."""
    draws = [uniform(5, n) if along == "index" else uniform(n, 0) for n in range(10_000)]

    assert all(0.0 <= draw < 1.0 for draw in draws)
    assert len(set(draws)) == len(draws)
    # 99 degrees of freedom each: 150 is passed by chance once in a thousand
    singles = Counter(int(100 * draw) for draw in draws)
    assert sum((singles[cell] - 100) ** 2 / 100 for cell in range(100)) < 150
    pairs = Counter((int(10 * a), int(10 * b)) for a, b in pairwise(draws))
    cells = [(a, b) for a in range(10) for b in range(10)]
    assert sum((pairs[cell] - 100) ** 2 / 100 for cell in cells) < 150


def test_any_integer_is_a_seed() -> None:
    """Seeds wrap at 64 bits: negative ones and large ones are as good as others."""
    assert uniform(2**64 - 1, 3) == uniform(-1, 3)
    assert 4 == len({uniform(seed, 0) for seed in (0, -1, 2**63, 2**53 + 1)})


def test_no_seed_has_the_stream_of_another_shifted() -> None:
    """Not even a seed that is one step of the generator's counter away from the other."""
    step = 0x9E3779B97F4A7C15

    assert not {uniform(1, i) for i in range(100)} & {uniform(1 + step, i) for i in range(100)}
