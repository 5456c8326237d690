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
from streamwell.engine.decode_graphs import (
    MOST_BYTES,
    MOST_TOKENS,
    DecodeGraphs,
    Record,
    Recording,
    Replay,
    work,
)
from streamwell.engine.sequence import Chunk
from streamwell.engine.torch_model import TorchModel

CPU = torch.device("cpu")
BLOCK_SIZE, NUM_BLOCKS = 16, 400
MAX_NUM_SEQS, MAX_MODEL_LEN = 5, 600


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
    recording = Recording(record, MAX_NUM_SEQS, MAX_MODEL_LEN) if record else None
    model = TorchModel(decoder(window, variations or {}, CPU), BLOCK_SIZE, recording=recording)
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
    """Logits and cache, whoever decodes; all is recorded before the first of them."""
    rng, tracer = random.Random(7), Tracer()
    eager, replayed = (model_of(record, window, variations) for record in (None, tracer))
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
    assert 4 * 3 == tracer.num_recorded, "1 to 8 sequences, of 256 to 1024 tokens"


def graphs_of(num_seqs: int, max_model_len: int, block_size: int = BLOCK_SIZE) -> DecodeGraphs:
    """On a device without values, where recording costs nothing."""
    lean = decoder(None, {}, META)
    cache = PagedCache(lean.shapes, NUM_BLOCKS, block_size, lean.dtype, META)
    return DecodeGraphs(lean, cache, Recording(lambda compute: compute, num_seqs, max_model_len))


@pytest.mark.parametrize("lengths", [[600, 20], [SHORT_CONTEXT + 1, SHORT_CONTEXT // 2]])
def test_contexts_that_are_not_alike_are_not_padded_to_one_length(lengths: list[int]) -> None:
    """They are computed as ever."""
    graphs = graphs_of(2, MAX_MODEL_LEN)
    chunks = decodes(random.Random(1), lengths)

    assert graphs.forward(chunks) is None
    assert graphs.forward(chunks[:1]) is not None


def test_graphs_are_of_bounded_size() -> None:
    """Neither a long context has one, nor a step that reads very much."""
    graphs = graphs_of(1000, 1 << 20)
    bound = {count * width for count, width in graphs._graphs}
    token_bytes = 4 * 2 * (8 + 8)

    assert MOST_TOKENS == BLOCK_SIZE * max(width for _, width in graphs._graphs)
    assert 1024 == max(count for count, _ in graphs._graphs)
    assert MOST_BYTES == max(bound) * BLOCK_SIZE * token_bytes


@torch.inference_mode()
def test_other_steps_are_not_replayed() -> None:
    """With a prompt in them; and of rows that nobody samples from there are no logits."""
    rng = random.Random(2)
    eager, replayed = model_of(), model_of(lambda compute: compute)
    first, second = decodes(rng, [3, 40])
    with_prefill = [first, Chunk(second.seq, 0, 40)]
    for chunks, rows in ((with_prefill, [0, 40]), ([first, second], [1])):
        for model in (eager, replayed):
            prefill(model, [first, second])
        torch.testing.assert_close(
            replayed.forward(chunks, rows), eager.forward(chunks, rows), atol=1e-5, rtol=1e-5
        )


@torch.inference_mode()
def test_what_cannot_be_recorded_is_computed_as_ever() -> None:
    """It is said once, while the model loads, and no more is tried."""
    num_tried = 0

    def fail_the_second(compute: Replay) -> Replay:
        nonlocal num_tried
        num_tried += 1
        return compute if num_tried == 1 else fail(compute)

    eager = model_of()
    with pytest.warns(UserWarning, match="no room for a graph"):
        failing = model_of(fail_the_second)
    chunks = decodes(random.Random(3), [9])
    for model in (eager, failing):
        prefill(model, chunks)
    assert torch.equal(logits_of(eager, chunks), logits_of(failing, chunks))
    assert 2 == num_tried


def test_whether_they_work_is_tried_out() -> None:
    """Neither what cannot be recorded does, nor what gives something else, or always the same."""
    lean = decoder(None, {}, CPU)

    def forget(compute: Replay) -> Replay:
        result = torch.zeros_like(compute())
        return lambda: result

    def repeat(compute: Replay) -> Replay:
        result = compute()
        return lambda: result

    assert work(lean, BLOCK_SIZE, Tracer())
    assert not work(lean, BLOCK_SIZE, forget)
    assert not work(lean, BLOCK_SIZE, repeat)
    with pytest.warns(UserWarning, match="no room for a graph"):
        assert not work(lean, BLOCK_SIZE, fail)


@pytest.mark.parametrize("variations", [{}, VARIED], ids=["plain", "varied"])
@pytest.mark.parametrize("window", [None, 3])
def test_a_recorded_step_reads_nothing_of_its_device(
    window: int | None, variations: dict[str, Any]
) -> None:
    """While a GPU records, the host may not wait for it. The device here has no values at all."""
    lean = decoder(window, variations, META)
    cache = PagedCache(lean.shapes, 8, 4, lean.dtype, META)
    graphs = DecodeGraphs(lean, cache, Recording(lambda compute: compute, 3, 10))
    seq = with_prompt("0", [1] * 10)
    seq.block_ids = [1, 2, 3]
    logits = graphs.forward([Chunk(seq, 9, 1)] * 3)

    assert logits is not None
    assert META == logits.device
    assert (3, VOCABULARY) == logits.shape
