"""Decode steps that are recorded once and replayed with other inputs: what a GPU's graphs do.

A CPU has no such graphs. Here PyTorch's tracer records a step as the operations that it calls, with
every shape and every number that the host had a say in; a replay knows nothing else.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
import torch
from scheduler_bench import with_prompt
from small_decoder import META, VARIED, VOCABULARY, decoder
from torch.fx.experimental.proxy_tensor import make_fx

from streamwell.engine.attention import PagedCache
from streamwell.engine.batch_layout import SHORT_CONTEXT
from streamwell.engine.decode_graphs import MOST_PLACES, DecodeGraphs, Record, Replay, works
from streamwell.engine.sequence import Chunk
from streamwell.engine.torch_model import TorchModel

CPU = torch.device("cpu")
BLOCK_SIZE, NUM_BLOCKS = 16, 400


class Tracer:
    """A `Record` that counts."""

    def __init__(self) -> None:
        self.num_recorded = 0

    def __call__(self, compute: Replay) -> Replay:
        self.num_recorded += 1
        assert isinstance(compute, partial)
        with torch.no_grad():
            traced = make_fx(lambda table: compute.func(table))(*compute.args)
        return partial(traced, *compute.args)


def fail(_compute: Replay) -> Replay:
    raise torch.OutOfMemoryError("no room for a graph")


def model_of(
    record: Record | None = None,
    window: int | None = None,
    variations: dict[str, Any] | None = None,
) -> TorchModel:
    """The same weights at every call, and a cache full of what is not finite."""
    torch.manual_seed(0)
    model = TorchModel(decoder(window, variations or {}, CPU), BLOCK_SIZE, record=record)
    model.allocate(NUM_BLOCKS)
    for side in (*model._cache.keys, *model._cache.values):
        side[BLOCK_SIZE:] = torch.nan
    return model


def decodes(rng: random.Random, lengths: list[int]) -> list[Chunk]:
    """The last token of sequences of these lengths; blocks in any order."""
    sizes = [-(-length // BLOCK_SIZE) for length in lengths]
    free = rng.sample(range(1, NUM_BLOCKS + 1), sum(sizes))
    chunks = []
    for number, (length, size) in enumerate(zip(lengths, sizes, strict=True)):
        seq = with_prompt(str(number), [rng.randrange(VOCABULARY) for _ in range(length)])
        seq.block_ids = [free.pop() for _ in range(size)]
        chunks.append(Chunk(seq, length - 1, 1))
    return chunks


def prefill(model: TorchModel, chunks: list[Chunk]) -> None:
    """Compute what comes before these chunks."""
    for chunk in chunks:
        if chunk.start:
            model.forward([Chunk(chunk.seq, 0, chunk.start)], [])


def logits_of(model: TorchModel, chunks: list[Chunk]) -> torch.Tensor:
    return model.forward(chunks, list(range(len(chunks)))).clone()


@pytest.mark.slow
@pytest.mark.parametrize("variations", [{}, VARIED], ids=["plain", "varied"])
@pytest.mark.parametrize("window", [None, 5])
@torch.inference_mode()
def test_a_replay_is_the_step(window: int | None, variations: dict[str, Any]) -> None:
    """Logits and cache, whoever decodes; one recording serves all steps of a bucket."""
    rng, tracer = random.Random(7), Tracer()
    eager, replayed = (model_of(record, window, variations) for record in (None, tracer))
    buckets = set()
    for _ in range(8):
        longest = rng.choice([1, 17, SHORT_CONTEXT, SHORT_CONTEXT + 1, 600])
        count = rng.randint(1, 5)
        chunks = decodes(
            rng, [longest, *(rng.randint(-(-longest // 2), longest) for _ in range(count - 1))]
        )
        for model in (eager, replayed):
            prefill(model, chunks)
        expected, got = (logits_of(model, chunks) for model in (eager, replayed))
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
        for name in ("keys", "values"):
            (ours,), (theirs,) = (getattr(model._cache, name) for model in (replayed, eager))
            torch.testing.assert_close(ours, theirs, equal_nan=True, atol=1e-4, rtol=1e-4)
            assert not ours[:BLOCK_SIZE].any(), "block 0 stays zero"
        place = (count - 1).bit_length(), max(8, (longest - 1).bit_length())
        buckets.add(place)
    assert len(buckets) == tracer.num_recorded
    assert 2 < tracer.num_recorded < 8


@pytest.mark.parametrize("lengths", [[600, 20], [SHORT_CONTEXT + 1, SHORT_CONTEXT // 2]])
@torch.inference_mode()
def test_contexts_that_are_not_alike_are_not_padded_to_one_length(lengths: list[int]) -> None:
    """They are computed as ever."""
    tracer = Tracer()
    eager, replayed = model_of(), model_of(tracer)
    chunks = decodes(random.Random(1), lengths)
    for model in (eager, replayed):
        prefill(model, chunks)
    assert torch.equal(logits_of(eager, chunks), logits_of(replayed, chunks))
    assert not tracer.num_recorded


def test_a_graph_reads_no_more_than_a_bound() -> None:
    """Of places in the cache, padding included."""
    torch.manual_seed(0)
    lean = decoder(None, {}, META)
    tracer = Tracer()
    graphs = DecodeGraphs(lean, PagedCache(lean.shapes, 1, 1024, lean.dtype, META), tracer)
    seq = with_prompt("0", [1] * (MOST_PLACES // 2 + 1))
    seq.block_ids = [1] * (len(seq.token_ids) // 1024 + 1)
    chunk = Chunk(seq, seq.num_tokens - 1, 1)

    assert graphs.forward([chunk, chunk]) is None
    assert not tracer.num_recorded
    assert graphs.forward([chunk]) is not None


@torch.inference_mode()
def test_other_steps_are_not_recorded() -> None:
    """With a prompt in them, or with a token that nobody samples from."""
    rng, tracer = random.Random(2), Tracer()
    eager, replayed = model_of(), model_of(tracer)
    first, second = decodes(rng, [3, 40])
    with_prefill = [first, Chunk(second.seq, 0, 40)]
    for chunks, rows in ((with_prefill, [0, 40]), ([first, second], [1])):
        for model in (eager, replayed):
            prefill(model, [first, second])
        assert torch.equal(eager.forward(chunks, rows), replayed.forward(chunks, rows))
    assert not tracer.num_recorded


@torch.inference_mode()
def test_what_cannot_be_recorded_is_computed_as_ever() -> None:
    """It is said once, and not tried again."""
    eager, failing = model_of(), model_of(fail)
    chunks = decodes(random.Random(3), [9])
    for model in (eager, failing):
        prefill(model, chunks)
    expected = logits_of(eager, chunks)
    with pytest.warns(UserWarning, match="no room for a graph"):
        launched = logits_of(failing, chunks)
    again = logits_of(failing, chunks)  # without a warning, which would be an error here
    assert torch.equal(expected, launched)
    assert torch.equal(expected, again)


def test_whether_it_works_is_tried_out() -> None:
    """Neither what cannot be recorded works, nor what gives something else."""
    lean = decoder(None, {}, CPU)

    def forget(compute: Replay) -> Replay:
        result = torch.zeros_like(compute())
        return lambda: result

    assert works(lean, BLOCK_SIZE, Tracer())
    assert not works(lean, BLOCK_SIZE, forget)
    with pytest.warns(UserWarning, match="no room for a graph"):
        assert not works(lean, BLOCK_SIZE, fail)


@pytest.mark.parametrize("variations", [{}, VARIED], ids=["plain", "varied"])
@pytest.mark.parametrize("window", [None, 3])
def test_a_recorded_step_reads_nothing_of_its_device(
    window: int | None, variations: dict[str, Any]
) -> None:
    """While a GPU records, the host may not wait for it. The device here has no values at all."""
    lean = decoder(window, variations, META)
    graphs = DecodeGraphs(
        lean, PagedCache(lean.shapes, 8, 4, lean.dtype, META), lambda compute: compute
    )
    seq = with_prompt("0", [1] * 10)
    seq.block_ids = [1, 2, 3]
    logits = graphs.forward([Chunk(seq, 9, 1)] * 3)

    assert logits is not None
    assert META == logits.device
    assert (3, VOCABULARY) == logits.shape
