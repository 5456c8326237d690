"""The kernels of GPUs, run by Triton's interpreter, next to PyTorch."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import triton_interpreter  # noqa: F401 - before the kernels
from scheduler_bench import with_prompt

from streamwell.engine import kernel_attention
from streamwell.engine.attention import Attention, LayerShape, PagedCache
from streamwell.engine.families import DecoderSpec, Rope
from streamwell.engine.families.spec import Activation as Name
from streamwell.engine.kernel_attention import lay_out, lay_out_decodes
from streamwell.engine.kernel_choice import are_right, choose_kernels, load_kernels
from streamwell.engine.operations import IN_PYTORCH, Activation, Operations
from streamwell.engine.sequence import Chunk
from streamwell.engine.torch_model import paged_attention

CPU = torch.device("cpu")
BLOCK_SIZE, NUM_BLOCKS = 4, 60


@pytest.fixture(autouse=True)
def _quietly() -> Iterator[None]:
    """Rows that are nobody's divide zero by zero; nothing of them is stored."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "invalid value", RuntimeWarning)
        yield


def cache_of(shape: LayerShape, seed: int) -> PagedCache:
    """Full of numbers, the same for a seed; block 0 is zero."""
    cache = PagedCache([shape], NUM_BLOCKS, BLOCK_SIZE, torch.float32, CPU)
    generator = torch.Generator().manual_seed(seed)
    for side in (cache.keys[0], cache.values[0]):
        side[BLOCK_SIZE:] = torch.randn(side[BLOCK_SIZE:].shape, generator=generator)
    return cache


def chunks_of(rng: random.Random, sizes: list[tuple[int, int]]) -> list[Chunk]:
    """By contexts and the tokens of them that are computed; blocks in any order."""
    counts = [-(-end // BLOCK_SIZE) for end, _ in sizes]
    free = rng.sample(range(1, NUM_BLOCKS + 1), sum(counts))
    chunks = []
    for number, ((end, num_tokens), count) in enumerate(zip(sizes, counts, strict=True)):
        seq = with_prompt(str(number), [0] * end)
        seq.block_ids = [free.pop() for _ in range(count)]
        chunks.append(Chunk(seq, end - num_tokens, num_tokens))
    return chunks


def poison(cache: PagedCache, chunks: list[Chunk]) -> None:
    """What is nobody's is not finite."""
    slots = {
        chunk.seq.block_ids[place // BLOCK_SIZE] * BLOCK_SIZE + place % BLOCK_SIZE
        for chunk in chunks
        for place in range(chunk.end)
    }
    others = [slot for slot in range(len(cache.keys[0])) if slot not in slots]
    cache.keys[0][others] = cache.values[0][others] = torch.nan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "num_heads"),
    [
        pytest.param(LayerShape(2, 16, 16), 14, id="seven queries a key"),
        pytest.param(LayerShape(3, 24, 8), 3, id="sizes that are no powers of two"),
    ],
)
@pytest.mark.parametrize(
    ("window", "softcap", "has_sinks"),
    [
        pytest.param(None, None, False, id="all"),
        pytest.param(5, None, False, id="window"),
        pytest.param(None, 2.0, False, id="capped"),
        pytest.param(5, None, True, id="sinks"),
        pytest.param(None, 2.0, True, id="sinks, capped"),
    ],
)
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([(1, 1), (17, 1), (70, 1), (70, 70), (21, 3)], id="streams and prompts"),
        pytest.param([(150, 1)], id="a long context in parts"),
        pytest.param([(9, 1)] * 12, id="many streams"),
    ],
)
def test_attention_is_pytorchs(
    shape: LayerShape,
    num_heads: int,
    window: int | None,
    softcap: float | None,
    has_sinks: bool,
    sizes: list[tuple[int, int]],
) -> None:
    """Whoever is computed together; and nothing of anybody else is read, or written to."""
    chunks = chunks_of(random.Random(1), sizes)
    generator = torch.Generator().manual_seed(2)
    num_tokens = sum(chunk.num_tokens for chunk in chunks)
    heads, kv_heads = num_heads, shape.num_kv_heads
    both = torch.randn(num_tokens, heads + kv_heads, shape.key_dim, generator=generator)
    value = torch.randn(num_tokens, kv_heads, shape.value_dim, generator=generator)
    options: dict[str, Any] = {"scale": 0.3, "window": window, "softcap": softcap}
    if has_sinks:
        options["sinks"] = torch.randn(heads, generator=generator)
    plain, ours = cache_of(shape, 3), cache_of(shape, 3)
    poison(ours, chunks)

    expected, got = (
        attend(cache, chunks)(0, both[:, :heads], both[:, heads:], value, **options)
        for attend, cache in ((paged_attention, plain), (load_kernels().lay_out, ours))
    )

    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    poison(plain, chunks)
    for name in ("keys", "values"):
        assert torch.equal(*(getattr(each, name)[0].nan_to_num() for each in (ours, plain)))


def test_a_long_context_is_divided() -> None:
    """Where there are too few streams for all processors, and only there."""
    assert [32, 8, 1] == [kernel_attention._num_parts(count, CPU) for count in (1, 4, 17)]


def test_decodes_are_laid_out_alike_without_their_numbers() -> None:
    """What a graph computes of its tables is what the host lays out."""
    chunks = chunks_of(random.Random(5), [(1, 1), (16, 1), (17, 1), (4, 1)])
    expected = lay_out(chunks, BLOCK_SIZE, CPU)
    positions = torch.tensor([chunk.start for chunk in chunks], dtype=torch.int32)

    got = lay_out_decodes(positions, expected.blocks, BLOCK_SIZE)

    for name in ("new_slots", "blocks", "decodes", "prefills"):
        assert torch.equal(getattr(expected, name), getattr(got, name)), name


SPEC = DecoderSpec(
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=24,
    norm_eps=1e-6,
    max_position_embeddings=99,
    tie_word_embeddings=True,
    windows=(None, 5),
    ropes=(Rope(theta=1e4, dim=24),) * 2,
)


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh", "clamped_swiglu"])
@pytest.mark.parametrize("block_size", [1, 16, 64])
def test_kernels_are_tried_out(activation: Name, block_size: int) -> None:
    """With what the layers of a model ask for."""
    spec = replace(SPEC, activation=activation, attention_softcap=2.0, has_sinks=True)

    assert are_right(load_kernels(), CPU, torch.float32, spec, block_size)


def test_kernels_that_are_wrong_are_found_out() -> None:
    """Each of them by itself."""
    kernels = load_kernels()

    def wrong_gate(activation: str) -> Activation:
        right = IN_PYTORCH.gate(activation)
        return lambda both: right(both) * 1.01

    def without_window(cache: PagedCache, chunks: list[Chunk]) -> Attention:
        right = paged_attention(cache, chunks)
        return lambda *args, **options: right(*args, **options | {"window": None})

    for wrong in (
        kernels._replace(operations=Operations(lambda x, cos, sin: x * cos, IN_PYTORCH.gate)),
        kernels._replace(operations=Operations(IN_PYTORCH.rotate, wrong_gate)),
        kernels._replace(lay_out=without_window),
    ):
        assert not are_right(wrong, CPU, torch.float32, SPEC, 16)


def test_a_cpu_has_none() -> None:
    """And is not told so."""
    assert (None, ()) == choose_kernels(CPU, torch.float32, SPEC, 16)
