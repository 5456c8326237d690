"""What a step reads of the paged cache: each sequence its own tokens, and little beside them."""

from __future__ import annotations

import random

import pytest
import torch
from scheduler_bench import with_prompt

from streamwell.engine.attention import LayerShape, PagedAttention, PagedCache, sequence_attention
from streamwell.engine.batch_layout import SHORT_CONTEXT, build_layout
from streamwell.engine.sequence import Chunk

CPU = torch.device("cpu")
BLOCK = 16
SHAPE = LayerShape(num_kv_heads=2, key_dim=8, value_dim=4)
NUM_HEADS = 6

LENGTHS = [
    pytest.param([7], id="one"),
    pytest.param([40, 40, 40], id="alike"),
    pytest.param([300, 1, 256, 33], id="near each other"),
    pytest.param([2000, 5, 700, 90, 1999, 256, 257, 699, 4], id="far from each other"),
]


def chunks_of(lengths: list[int], num_prefill: int, rng: random.Random) -> list[Chunk]:
    """Sequences that compute one token each, then one that computes more; blocks in any order."""
    ends = [*lengths, *([100] if num_prefill else [])]
    sizes = [-(-end // BLOCK) for end in ends]
    free = rng.sample(range(1, sum(sizes) + 1), sum(sizes))
    chunks = []
    for number, (end, size) in enumerate(zip(ends, sizes, strict=True)):
        seq = with_prompt(str(number), range(end))
        seq.block_ids = [free.pop() for _ in range(size)]
        count = 1 if number < len(lengths) else num_prefill
        chunks.append(Chunk(seq, end - count, count))
    return chunks


def filled_cache(chunks: list[Chunk]) -> PagedCache:
    """Random where the sequences have tokens; elsewhere what a sequence before may have left."""
    num_blocks = sum(len(chunk.seq.block_ids) for chunk in chunks)
    cache = PagedCache([SHAPE], num_blocks, BLOCK, torch.float32, CPU)
    for side in (cache.keys[0], cache.values[0]):
        side[BLOCK:] = torch.nan
        for chunk in chunks:
            for place in range(chunk.start):
                block = chunk.seq.block_ids[place // BLOCK]
                side[block * BLOCK + place % BLOCK] = torch.randn(side.shape[1:])
    return cache


def own(side: torch.Tensor, chunk: Chunk) -> torch.Tensor:
    places = range(chunk.end)
    return side[[chunk.seq.block_ids[at // BLOCK] * BLOCK + at % BLOCK for at in places]]


@pytest.mark.parametrize("num_prefill", [0, 3])
@pytest.mark.parametrize("window", [None, 50])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_each_sequence_reads_its_own(
    lengths: list[int], window: int | None, num_prefill: int
) -> None:
    """Whatever the lengths of the others are, as if it was alone."""
    torch.manual_seed(1)
    chunks = chunks_of(lengths, num_prefill, random.Random(1))
    cache = filled_cache(chunks)
    num_tokens = sum(chunk.num_tokens for chunk in chunks)
    query = torch.randn(num_tokens, NUM_HEADS, SHAPE.key_dim)
    key = torch.randn(num_tokens, SHAPE.num_kv_heads, SHAPE.key_dim)
    value = torch.randn(num_tokens, SHAPE.num_kv_heads, SHAPE.value_dim)
    attend = PagedAttention(cache, build_layout(chunks, BLOCK, CPU))
    out = attend(0, query, key, value, scale=0.3, window=window)

    first = 0
    for chunk in chunks:
        rows = slice(first, first := first + chunk.num_tokens)
        keys, values = own(cache.keys[0], chunk), own(cache.values[0], chunk)
        places = torch.arange(chunk.end)
        back = places[chunk.start :, None] - places
        mask = torch.where((back >= 0) & (back < (window or chunk.end)), 0.0, -torch.inf)
        assert torch.equal(key[rows], keys[chunk.start :])
        expected = sequence_attention(query[rows], keys, values, mask, 0.3)
        torch.testing.assert_close(out[rows], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_a_short_context_is_not_read_as_if_it_were_long(lengths: list[int]) -> None:
    """What is read grows with the sum of the contexts, however long one of them is."""
    layout = build_layout(chunks_of(lengths, 0, random.Random(1)), BLOCK, CPU)

    limits = [max(SHORT_CONTEXT, 2 * length) for length in lengths]
    assert sum(len(group.slots) for group in layout.decodes) <= sum(limits)
    assert len(lengths) == sum(group.count for group in layout.decodes)
